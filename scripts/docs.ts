import { writeFileSync } from 'node:fs';
import { configurationDocument } from '#config/documentation.js';

writeFileSync(new URL('../docs/configuration.md', import.meta.url), configurationDocument());
