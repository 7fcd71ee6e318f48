import { createMemoryStore } from '#test/store/memory-store.js';
import { describeKvStore } from './kv-contract.js';

describeKvStore('memory store', async () => createMemoryStore());
