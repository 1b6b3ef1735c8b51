// Does with @platformatic/kafka what `tests/interop/gateway/clients.py` asks of each client.
import { readFileSync } from 'node:fs';
import {
  Admin, ConfigResourceTypes, Consumer, FetchIsolationLevels, IncrementalAlterConfigOperationTypes, MessagesStreamModes,
  Producer, stringDeserializers, stringSerializers,
} from '@platformatic/kafka';

const plan = JSON.parse(process.argv[2]);
const waitMs = plan.wait_s * 1000;

function known(mechanism = plan.mechanisms[0], password = plan.password) {
  const sasl = { mechanism, username: plan.user, password };
  return { clientId: 'client', bootstrapBrokers: [plan.address], sasl };
}

async function isKnown(mechanism, password) {
  const admin = new Admin({ ...known(mechanism, password), retries: 0 });
  try {
    await admin.listTopics();
    return true;
  } catch (error) {
    return false;
  } finally {
    await admin.close();
  }
}

function created(admin, ...topics) {
  return admin.createTopics({ topics, partitions: 2, replicas: 1 });
}

async function produce(topic, values, compression = 'none') {
  const producer = new Producer({ ...known(), serializers: stringSerializers, idempotent: true });
  await producer.send({ compression, messages: values.map((value, i) => ({ topic, value, partition: i % 2 })) });
  await producer.close();
}

// Reads so many records as a member of a group, and lets `end` have them before it leaves.
async function read(topic, groupId, count, end, groupProtocol = 'classic') {
  const consumer = new Consumer({
    ...known(), groupId, groupProtocol, deserializers: stringDeserializers, autocommit: false,
    isolationLevel: FetchIsolationLevels.READ_COMMITTED,
  });
  const fallbackMode = 'earliest';
  const stream = await consumer.consume({ topics: [topic], mode: MessagesStreamModes.COMMITTED, fallbackMode });
  const messages = [];
  const timer = setTimeout(() => stream.close(), waitMs);
  for await (const message of stream) if (messages.push(message) === count) break;
  clearTimeout(timer);
  if (end) await end(consumer, messages);
  await consumer.close(true);
  return messages.map((message) => message.value).sort();
}

async function group(admin, topic, groupProtocol) {
  await created(admin, topic);
  const found = [];
  for (const values of plan.group) {
    await produce(topic, values);
    const commit = async (consumer, messages) => {
      const next = messages.map(({ partition, offset }) => ({ topic, partition, offset: offset + 1n, leaderEpoch: 0 }));
      await consumer.commit({ offsets: next });
    };
    found.push(await read(topic, topic, values.length, commit, groupProtocol));
  }
  return found;
}

const parts = {
  async codecs(admin) {
    const found = {};
    for (const [codec, values] of Object.entries(plan.codecs)) {
      const topic = `${plan.topic}-${codec}`;
      await created(admin, topic);
      await produce(topic, values, codec);
      found[codec] = await read(topic, topic, values.length);
    }
    return found;
  },

  group: (admin) => group(admin, `${plan.topic}-group`, 'classic'),

  newer_group: (admin) => group(admin, `${plan.topic}-newer-group`, 'consumer'),

  async transaction(admin) {
    const [source, target] = [`${plan.topic}-source`, `${plan.topic}-transaction`];
    await created(admin, source, target);
    await produce(source, plan.committed);
    const settings = { transactionalId: target, idempotent: true, serializers: stringSerializers };
    const producer = new Producer({ ...known(), ...settings });
    const messagesOf = (values) => values.map((value) => ({ topic: target, value }));
    const aborted = await producer.beginTransaction();
    await aborted.send({ messages: messagesOf(plan.aborted) });
    await aborted.abort();
    const transaction = await producer.beginTransaction();
    await read(source, source, plan.committed.length, async (consumer, messages) => {
      await transaction.addConsumer(consumer);
      await transaction.send({ messages: messagesOf(messages.map((message) => message.value)) });
      for (const message of messages) await transaction.addOffset(message);
      await transaction.commit();
    });
    await producer.close();
    return read(target, target, plan.committed.length);
  },

  async admin(admin) {
    const topic = `${plan.topic}-admin`;
    await created(admin, topic);
    const resource = { resourceType: ConfigResourceTypes.TOPIC, resourceName: topic };
    const set = { name: 'retention.ms', value: '86400000', configOperation: IncrementalAlterConfigOperationTypes.SET };
    await admin.incrementalAlterConfigs({ resources: [{ ...resource, configs: [set] }] });
    const [described] = await admin.describeConfigs({ resources: [resource] });
    const metadata = await admin.metadata({ topics: [topic] });
    await admin.deleteTopics({ topics: [topic] });
    return {
      partitions: metadata.topics.get(topic).partitionsCount,
      'retention.ms': described.configs.find((each) => each.name === 'retention.ms').value,
      is_deleted: !(await admin.listTopics()).includes(topic),
    };
  },
};

const admin = new Admin(known());
const manifest = new URL('./node_modules/@platformatic/kafka/package.json', import.meta.url);
const done = { version: JSON.parse(readFileSync(manifest)).version };
for (const name of plan.parts) done[name] = await parts[name](admin);
await admin.close();
done.logins = [];
for (const each of plan.mechanisms) if (await isKnown(each, plan.password)) done.logins.push(each);
done.is_refused = !(await isKnown(plan.mechanisms[0], 'wrong'));
console.log(JSON.stringify(done));
process.exit(0);
