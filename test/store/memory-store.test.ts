import { createMemoryStore } from '#store/memory-store.js';
import { describeKvStore } from './kv-contract.js';

describeKvStore('memory store', async () => createMemoryStore());
