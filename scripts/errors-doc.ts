import { writeFile } from 'node:fs/promises';
import { errorsPage } from '#api/errors-page.js';

await writeFile(new URL('../docs/errors.md', import.meta.url), errorsPage());
