// A member of a group: prints the value of each record. Arguments: address, group, topic, client id.
const { Kafka, logLevel } = require('kafkajs')

const [address, groupId, topic, clientId] = process.argv.slice(2)
const consumer = new Kafka({ clientId, brokers: [address], logLevel: logLevel.NOTHING }).consumer({
  groupId, sessionTimeout: 8000, heartbeatInterval: 1000, rebalanceTimeout: 15000, maxWaitTimeInMs: 500,
})

process.on('SIGTERM', () => consumer.disconnect().then(() => process.exit(0)))

consumer.connect()
  .then(() => consumer.subscribe({ topics: [topic], fromBeginning: true }))
  .then(() => consumer.run({
    autoCommitInterval: 500,
    eachMessage: async ({ message }) => { process.stdout.write(message.value + '\n') },
  }))
  .catch((e) => { console.error(e); process.exit(1) })
