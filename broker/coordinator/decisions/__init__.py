"""What coordinators decide: no clock, socket, file or chance of their own."""
