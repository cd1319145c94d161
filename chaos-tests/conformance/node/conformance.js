// kafkajs: produce and administer. It cannot consume without a consumer group, and says so by having no way to try.
const { Kafka, CompressionTypes, logLevel } = require('kafkajs')

const kafka = new Kafka({ brokers: process.env.KUORUM_BOOTSTRAP.split(','), logLevel: logLevel.NOTHING })
const rf = Number(process.env.RF || 3)
const topic = `kafkajs-${Date.now()}`
let passed = 0
let failed = 0

async function check(name, story) {
  try {
    await story()
    passed++
    console.log(`  ok    ${name}`)
  } catch (problem) {
    failed++
    console.log(`  FAIL  ${name}: ${problem.stack}`)
  }
}

function equal(actual, expected, what) {
  if (JSON.stringify(actual) !== JSON.stringify(expected)) throw new Error(`${what}: expected ${JSON.stringify(expected)}, got ${JSON.stringify(actual)}`)
}

async function main() {
  const admin = kafka.admin()
  await admin.connect()
  await check('create a topic and see it', async () => {
    equal(await admin.createTopics({ topics: [{ topic, numPartitions: 3, replicationFactor: rf }], waitForLeaders: true }), true, 'created')
    const { topics } = await admin.fetchTopicMetadata({ topics: [topic] })
    equal(topics[0].partitions.length, 3, 'partitions')
  })
  for (const [name, compression] of [['none', CompressionTypes.None], ['gzip', CompressionTypes.GZIP]]) {
    await check(`produce with ${name}, acks=all`, async () => {
      const producer = kafka.producer()
      await producer.connect()
      const messages = Array.from({ length: 200 }, (_, i) => ({ partition: 0, key: 'k', value: `${name}-${i}`, headers: { source: 'teller' } }))
      const [result] = await producer.send({ topic, acks: -1, compression, messages })
      equal(result.errorCode, 0, 'error')
      await producer.disconnect()
    })
  }
  await check('produce idempotently', async () => {
    const producer = kafka.producer({ idempotent: true, maxInFlightRequests: 1 })
    await producer.connect()
    for (let i = 0; i < 20; i++) {
      const [result] = await producer.send({ topic, messages: [{ partition: 1, key: 'k', value: String(i) }] })
      equal(Number(result.baseOffset), i, 'offset')
    }
    await producer.disconnect()
  })
  await check('offsets', async () => {
    const offsets = await admin.fetchTopicOffsets(topic)
    equal(offsets.find((o) => o.partition === 0).high, '400', 'high of partition 0')
    equal(offsets.find((o) => o.partition === 1).high, '20', 'high of partition 1')
  })
  await check('configurations', async () => {
    await admin.alterConfigs({ validateOnly: false, resources: [{ type: 2, name: topic, configEntries: [{ name: 'retention.ms', value: '3600000' }] }] })
    for (let deadline = Date.now() + 10000; ;) {
      const { resources } = await admin.describeConfigs({ includeSynonyms: false, resources: [{ type: 2, name: topic }] })
      if (resources[0].configEntries.find((e) => e.configName === 'retention.ms').configValue === '3600000') break
      if (Date.now() > deadline) throw new Error('the change is not seen')
    }
  })
  await check('add partitions, delete records, delete the topic', async () => {
    await admin.createPartitions({ topicPartitions: [{ topic, count: 4 }] })
    await admin.deleteTopicRecords({ topic, partitions: [{ partition: 0, offset: '100' }] })
    await admin.deleteTopics({ topics: [topic] })
  })
  await admin.disconnect()
  console.log(`${passed} passed, ${failed} failed`)
  process.exit(failed ? 1 : 0)
}

main().catch((problem) => { console.log(problem.stack); process.exit(1) })
