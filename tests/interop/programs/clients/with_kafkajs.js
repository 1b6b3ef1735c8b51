// Does with kafkajs what `tests/interop/gateway/clients.py` asks of each client.
const { CompressionCodecs, CompressionTypes, ConfigResourceTypes, Kafka, logLevel } = require('kafkajs');

CompressionCodecs[CompressionTypes.Snappy] = require('kafkajs-snappy');

const plan = JSON.parse(process.argv[2]);
const types = { none: CompressionTypes.None, gzip: CompressionTypes.GZIP, snappy: CompressionTypes.Snappy };
const waitMs = plan.wait_s * 1000;

function known(mechanism = plan.mechanisms[0], password = plan.password, retries = 5) {
  const sasl = { mechanism: mechanism.toLowerCase(), username: plan.user, password };
  return new Kafka({ brokers: [plan.address], sasl, logLevel: logLevel.NOTHING, retry: { retries } });
}

async function isKnown(mechanism, password) {
  const admin = known(mechanism, password, 0).admin();
  try {
    await admin.connect();
    await admin.listTopics();
    return true;
  } catch (error) {
    return false;
  } finally {
    await admin.disconnect();
  }
}

function created(admin, ...topics) {
  return admin.createTopics({ topics: topics.map((topic) => ({ topic, numPartitions: 2 })), waitForLeaders: true });
}

async function produce(topic, values, compression = CompressionTypes.None) {
  const producer = known().producer({ idempotent: true });
  await producer.connect();
  await producer.send({ topic, compression, messages: values.map((value, i) => ({ value, partition: i % 2 })) });
  await producer.disconnect();
}

// Reads so many records as a member of a group, and commits the offsets behind them by `end`.
async function read(topic, groupId, count, end) {
  const consumer = known().consumer({ groupId });
  const values = [];
  const offsets = {};
  await consumer.connect();
  await consumer.subscribe({ topic, fromBeginning: true });
  let timer;
  await new Promise((resolve) => {
    timer = setTimeout(resolve, waitMs);
    consumer.run({
      autoCommit: false,
      eachMessage: async ({ partition, message }) => {
        values.push(message.value.toString());
        offsets[partition] = String(BigInt(message.offset) + 1n);
        if (values.length === count) resolve();
      },
    });
  });
  clearTimeout(timer);
  if (end) await end(consumer, Object.entries(offsets).map(([p, offset]) => ({ partition: Number(p), offset })));
  await consumer.disconnect();
  return values.sort();
}

const parts = {
  async codecs(admin) {
    const found = {};
    for (const [codec, values] of Object.entries(plan.codecs)) {
      const topic = `${plan.topic}-${codec}`;
      await created(admin, topic);
      await produce(topic, values, types[codec]);
      found[codec] = await read(topic, topic, values.length);
    }
    return found;
  },

  async group(admin) {
    const topic = `${plan.topic}-group`;
    await created(admin, topic);
    const found = [];
    for (const values of plan.group) {
      await produce(topic, values);
      const commit = (consumer, offsets) => consumer.commitOffsets(offsets.map((each) => ({ topic, ...each })));
      found.push(await read(topic, topic, values.length, commit));
    }
    return found;
  },

  async transaction(admin) {
    const [source, target] = [`${plan.topic}-source`, `${plan.topic}-transaction`];
    await created(admin, source, target);
    await produce(source, plan.committed);
    const producer = known().producer({ transactionalId: target, maxInFlightRequests: 1, idempotent: true });
    await producer.connect();
    const aborted = await producer.transaction();
    await aborted.send({ topic: target, messages: plan.aborted.map((value) => ({ value })) });
    await aborted.abort();
    const transaction = await producer.transaction();
    await read(source, source, plan.committed.length, async (consumer, partitions) => {
      await transaction.send({ topic: target, messages: plan.committed.map((value) => ({ value })) });
      await transaction.sendOffsets({ consumerGroupId: source, topics: [{ topic: source, partitions }] });
      await transaction.commit();
    });
    await producer.disconnect();
    return read(target, target, plan.committed.length);
  },

  async admin(admin) {
    const topic = `${plan.topic}-admin`;
    await created(admin, topic);
    const resource = { type: ConfigResourceTypes.TOPIC, name: topic };
    const configEntries = [{ name: 'retention.ms', value: '86400000' }];
    await admin.alterConfigs({ resources: [{ ...resource, configEntries }] });
    const described = await admin.describeConfigs({ resources: [resource] });
    const metadata = await admin.fetchTopicMetadata({ topics: [topic] });
    await admin.deleteTopics({ topics: [topic] });
    return {
      partitions: metadata.topics[0].partitions.length,
      'retention.ms': described.resources[0].configEntries.find((e) => e.configName === 'retention.ms').configValue,
      is_deleted: !(await admin.listTopics()).includes(topic),
    };
  },
};

async function main() {
  const admin = known().admin();
  await admin.connect();
  const done = { version: require('kafkajs/package.json').version };
  for (const name of plan.parts) done[name] = await parts[name](admin);
  await admin.disconnect();
  done.logins = [];
  for (const each of plan.mechanisms) if (await isKnown(each, plan.password)) done.logins.push(each);
  done.is_refused = !(await isKnown(plan.mechanisms[0], 'wrong'));
  console.log(JSON.stringify(done));
}

main().then(() => process.exit(0), (error) => {
  console.error(error);
  process.exit(1);
});
