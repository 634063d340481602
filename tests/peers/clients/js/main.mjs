// Clients of JavaScript against a cluster: kafkajs and @platformatic/kafka make a topic, produce, read as a group; kafkajs in transactions too.
//
//   node main.mjs BOOTSTRAP    prints a line for each; exit code 1 where one failed
import { setTimeout as wait } from 'node:timers/promises';
import { Admin, Consumer, Producer, stringDeserializers, stringSerializers } from '@platformatic/kafka';
import kafkajs from 'kafkajs';

const brokers = process.argv[2].split(',');
const RECORDS = 1000;
const LIMIT_MS = 60_000;

async function kafkaJs(topic) {
  const kafka = new kafkajs.Kafka({ clientId: 'kafkajs', brokers, logLevel: kafkajs.logLevel.NOTHING });
  const admin = kafka.admin();
  await admin.connect();
  await admin.createTopics({ topics: [{ topic, numPartitions: 3, replicationFactor: 3 }] });
  await admin.alterConfigs({ resources: [{ type: 2, name: topic, configEntries: [{ name: 'retention.ms', value: '100000' }] }] });
  await admin.createPartitions({ topicPartitions: [{ topic, count: 5 }] });
  const producer = kafka.producer({ transactionalId: topic, maxInFlightRequests: 1, idempotent: true });
  await producer.connect();
  for (const commits of [true, false, true, false]) {
    const transaction = await producer.transaction();
    const compression = commits ? kafkajs.CompressionTypes.GZIP : kafkajs.CompressionTypes.None;
    await transaction.send({ topic, compression, messages: values(RECORDS / 2, commits ? 'committed' : 'aborted') });
    await (commits ? transaction.commit() : transaction.abort());
  }
  const read = { committed: 0, aborted: 0 };
  const members = await Promise.all([0, 1].map(async () => {
    const member = kafka.consumer({ groupId: topic, maxWaitTimeInMs: 200 });
    await member.connect();
    await member.subscribe({ topic, fromBeginning: true });
    await member.run({ eachMessage: async ({ message }) => { read[message.value.toString()] += 1; } });
    return member;
  }));
  await until(() => read.committed === RECORDS, () => `a group read ${read.committed} of ${RECORDS}`);
  await Promise.all(members.map((member) => member.disconnect()));
  if (read.aborted) throw new Error(`${read.aborted} records of aborted transactions were read`);
  await admin.resetOffsets({ groupId: topic, topic, earliest: true });
  await admin.deleteGroups([topic]);
  await admin.deleteTopics({ topics: [topic] });
  await Promise.all([producer.disconnect(), admin.disconnect()]);
}

async function platformatic(topic) {
  const admin = new Admin({ clientId: 'admin', bootstrapBrokers: brokers });
  await admin.createTopics({ topics: [topic], partitions: 3, replicas: 3 });
  for (const compression of ['none', 'gzip', 'snappy', 'lz4']) {
    const producer = new Producer({ clientId: 'producer', bootstrapBrokers: brokers, serializers: stringSerializers, compression, idempotent: true });
    const messages = values(RECORDS / 4, compression).map((message) => ({ topic, ...message }));
    await producer.send({ messages });
    await producer.close();
  }
  for (const groupProtocol of ['classic', 'consumer']) {
    const groupId = `${topic}-${groupProtocol}`;
    const member = new Consumer({ groupId, clientId: 'member', bootstrapBrokers: brokers, deserializers: stringDeserializers, groupProtocol });
    const stream = await member.consume({ topics: [topic], mode: 'earliest', maxWaitTime: 200 });
    let read = 0;
    stream.on('data', () => { read += 1; });
    await until(() => read === RECORDS, () => `a group of the ${groupProtocol} protocol read ${read} of ${RECORDS}`);
    await stream.close();
    await member.close(true);
  }
  await admin.deleteTopics({ topics: [topic] });
  await admin.close();
}

function values(count, value) {
  return Array.from({ length: count }, (_, number) => ({ key: `key-${number}`, value }));
}

async function until(isSo, whatElse) {
  for (const began = Date.now(); !isSo(); await wait(20)) {
    if (Date.now() - began > LIMIT_MS) throw new Error(whatElse());
  }
}

for (const [name, tried] of [['kafkajs', kafkaJs], ['platformatic', platformatic]]) {
  const began = Date.now();
  const outcome = await tried(`${name}-${began}`).then(() => 'ok', (error) => { process.exitCode = 1; return error.message; });
  console.log(`${name.padEnd(12)} ${((Date.now() - began) / 1000).toFixed(1)} s  ${outcome}`);
}
