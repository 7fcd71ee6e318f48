// Writes the OpenAPI document of the management API to a file, for the types of the console.
import './usage.js';
import { writeFileSync } from 'node:fs';
import { createApi } from '#api/server.js';
import { fakeManagement } from '#test/api/fake-management.js';

const [file] = process.argv.slice(2);
if (file === undefined) throw new Error('usage: console-openapi.ts FILE');
const api = await createApi(fakeManagement(), { version: '0.0.0' });
const { body } = await api.inject({ url: '/openapi/service-v1.json' });
await api.close();
writeFileSync(file, body);
