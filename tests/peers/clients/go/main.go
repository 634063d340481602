// Clients of Go against a cluster: franz-go, sarama and kafka-go make a topic, produce with every codec, read as a group, copy in transactions.
//
//	clients BOOTSTRAP    prints a line for each; exit code 1 where one failed
package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/IBM/sarama"
	kafkago "github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	each       = 1000 // records of a codec
	codecs     = 5
	everything = each * codecs
	timeout    = 60 * time.Second
)

var brokers = strings.Split(os.Args[1], ",")

func main() {
	failed := false
	for _, client := range []struct {
		name string
		try  func(context.Context, string) error
	}{{"franz-go", franz}, {"sarama", saramas}, {"kafka-go", kafkaGo}} {
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		began := time.Now()
		err := client.try(ctx, fmt.Sprintf("%s-%d", client.name, began.UnixNano()))
		cancel()
		fmt.Printf("%-10s %5.1f s  %s\n", client.name, time.Since(began).Seconds(), outcome(err))
		failed = failed || err != nil
	}
	if failed {
		os.Exit(1)
	}
}

func outcome(err error) string {
	if err != nil {
		return err.Error()
	}
	return "ok"
}

func first(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// --- franz-go

func franz(ctx context.Context, topic string) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...))
	if err != nil {
		return err
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	if _, err := admin.CreateTopics(ctx, 4, 3, nil, topic, topic+"-copy"); err != nil {
		return err
	}
	all := []kgo.CompressionCodec{kgo.NoCompression(), kgo.GzipCompression(), kgo.SnappyCompression(), kgo.Lz4Compression(), kgo.ZstdCompression()}
	for _, codec := range all {
		if err := franzProduce(ctx, topic, codec); err != nil {
			return err
		}
	}
	if err := franzRead(ctx, topic); err != nil {
		return err
	}
	if err := franzCopy(ctx, topic); err != nil {
		return err
	}
	lags, err := admin.Lag(ctx, topic)
	if err == nil && lags[topic].Lag.Total() != 0 {
		err = fmt.Errorf("the group lags by %d", lags[topic].Lag.Total())
	}
	_, described := admin.DescribeTransactions(ctx, topic)
	_, listed := admin.ListTransactions(ctx, nil, nil)
	_, places := admin.DescribeAllLogDirs(ctx, nil)
	_, settings := admin.DescribeTopicConfigs(ctx, topic)
	_, deleted := admin.DeleteTopics(ctx, topic, topic+"-copy")
	return first(err, described, listed, places, settings, deleted)
}

func franzProduce(ctx context.Context, topic string, codec kgo.CompressionCodec) error {
	producer, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.ProducerBatchCompression(codec))
	if err != nil {
		return err
	}
	defer producer.Close()
	var records []*kgo.Record
	for i := range each {
		records = append(records, &kgo.Record{Topic: topic, Key: fmt.Append(nil, i), Value: []byte(strings.Repeat("x", 200))})
	}
	return producer.ProduceSync(ctx, records...).FirstErr()
}

func franzRead(ctx context.Context, topic string) error {
	var read atomic.Int64
	var members []*kgo.Client
	for range 3 {
		member, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.ConsumerGroup(topic), kgo.ConsumeTopics(topic),
			kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
		if err != nil {
			return err
		}
		defer member.Close()
		members = append(members, member)
		go func() {
			for fetched := member.PollFetches(ctx); !fetched.IsClientClosed(); fetched = member.PollFetches(ctx) {
				read.Add(int64(fetched.NumRecords()))
			}
		}()
	}
	for read.Load() < everything {
		if ctx.Err() != nil {
			return fmt.Errorf("a group read %d of %d", read.Load(), everything)
		}
		time.Sleep(20 * time.Millisecond)
	}
	for _, member := range members {
		if err := member.CommitUncommittedOffsets(ctx); err != nil {
			return err
		}
	}
	return nil
}

func franzCopy(ctx context.Context, topic string) error {
	session, err := kgo.NewGroupTransactSession(kgo.SeedBrokers(brokers...), kgo.TransactionalID(topic), kgo.ConsumerGroup(topic+"-copier"),
		kgo.ConsumeTopics(topic), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.RequireStableFetchOffsets(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		return err
	}
	defer session.Close()
	for copied := 0; copied < everything; {
		fetched := session.PollFetches(ctx)
		if err := first(ctx.Err(), session.Begin()); err != nil {
			return err
		}
		count := 0
		fetched.EachRecord(func(record *kgo.Record) {
			session.Produce(ctx, &kgo.Record{Topic: topic + "-copy", Value: record.Value}, nil)
			count++
		})
		committed, err := session.End(ctx, kgo.TryCommit)
		if err != nil {
			return err
		}
		if committed {
			copied += count
		}
	}
	return nil
}

// --- sarama, in the protocol versions of several brokers

func saramas(ctx context.Context, topic string) error {
	for _, version := range []sarama.KafkaVersion{sarama.V2_1_0_0, sarama.V2_8_0_0, sarama.MaxVersion} {
		if err := saramaOf(ctx, fmt.Sprintf("%s-%s", topic, version), version); err != nil {
			return fmt.Errorf("as of Kafka %s: %w", version, err)
		}
	}
	return nil
}

func saramaOf(ctx context.Context, topic string, version sarama.KafkaVersion) error {
	config := sarama.NewConfig()
	config.Version = version
	config.Producer.Return.Successes = true
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Idempotent = true
	config.Net.MaxOpenRequests = 1
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	admin, err := sarama.NewClusterAdmin(brokers, config)
	if err != nil {
		return err
	}
	defer admin.Close()
	if err := admin.CreateTopic(topic, &sarama.TopicDetail{NumPartitions: 3, ReplicationFactor: 3}, false); err != nil {
		return err
	}
	for codec := range sarama.CompressionCodec(codecs) {
		config.Producer.Compression = codec
		if err := saramaProduce(topic, config); err != nil {
			return err
		}
	}
	group, err := sarama.NewConsumerGroup(brokers, topic, config)
	if err != nil {
		return err
	}
	defer group.Close()
	counter := &counter{ctx: ctx}
	counter.ctx, counter.enough = context.WithCancel(ctx)
	if err := group.Consume(counter.ctx, []string{topic}, counter); err != nil || counter.read.Load() < everything {
		return fmt.Errorf("a group read %d of %d: %v", counter.read.Load(), everything, err)
	}
	_, offsets := admin.ListConsumerGroupOffsets(topic, nil)
	_, described := admin.DescribeConsumerGroups([]string{topic})
	_, settings := admin.DescribeConfig(sarama.ConfigResource{Type: sarama.TopicResource, Name: topic})
	return first(offsets, described, settings, admin.DeleteTopic(topic))
}

func saramaProduce(topic string, config *sarama.Config) error {
	producer, err := sarama.NewSyncProducer(brokers, config)
	if err != nil {
		return err
	}
	defer producer.Close()
	var messages []*sarama.ProducerMessage
	for range each {
		messages = append(messages, &sarama.ProducerMessage{Topic: topic, Value: sarama.StringEncoder(strings.Repeat("y", 100))})
	}
	return producer.SendMessages(messages)
}

type counter struct {
	ctx    context.Context
	enough context.CancelFunc
	read   atomic.Int64
}

func (*counter) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (*counter) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (c *counter) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case message, more := <-claim.Messages():
			if !more {
				return nil
			}
			session.MarkMessage(message, "")
			if c.read.Add(1) == everything {
				c.enough()
			}
		case <-session.Context().Done():
			return nil
		}
	}
}

// --- kafka-go

func kafkaGo(ctx context.Context, topic string) error {
	admin := &kafkago.Client{Addr: kafkago.TCP(brokers...)}
	made, err := admin.CreateTopics(ctx, &kafkago.CreateTopicsRequest{
		Topics: []kafkago.TopicConfig{{Topic: topic, NumPartitions: 3, ReplicationFactor: 3}},
	})
	if err := first(err, made.Errors[topic]); err != nil {
		return err
	}
	for _, codec := range []kafkago.Compression{0, kafkago.Gzip, kafkago.Snappy, kafkago.Lz4, kafkago.Zstd} {
		writer := &kafkago.Writer{Addr: kafkago.TCP(brokers...), Topic: topic, Compression: codec,
			RequiredAcks: kafkago.RequireAll, BatchTimeout: 10 * time.Millisecond}
		var messages []kafkago.Message
		for range each {
			messages = append(messages, kafkago.Message{Value: []byte(strings.Repeat("z", 100))})
		}
		if err := first(writer.WriteMessages(ctx, messages...), writer.Close()); err != nil {
			return err
		}
	}
	reader := kafkago.NewReader(kafkago.ReaderConfig{Brokers: brokers, GroupID: topic, Topic: topic, StartOffset: kafkago.FirstOffset})
	defer reader.Close()
	for read := range everything {
		if _, err := reader.ReadMessage(ctx); err != nil {
			return fmt.Errorf("a group read %d of %d: %w", read, everything, err)
		}
	}
	_, err = admin.DeleteTopics(ctx, &kafkago.DeleteTopicsRequest{Topics: []string{topic}})
	return err
}
