import { seedOf } from '#test/seed.js';
import { fuzzHttp } from './campaign.js';

const [amount = '60s'] = process.argv.slice(2);
const number = Number.parseInt(amount, 10);
const isTime = amount.endsWith('s');
if (!(number > 0)) throw new RangeError(`a number of mutants, or of seconds as in 60s: ${amount}`);
const seed = seedOf(Date.now() % 1_000_000);
const started = performance.now();
const seconds = (): number => (performance.now() - started) / 1_000;

process.stdout.write(`fuzz http: ${amount}, seed ${seed}\n`);
const { mutants, accepted, failure } = fuzzHttp(seed, (done) => (isTime ? seconds() < number : done < number));
if (failure !== null) process.stdout.write(`${JSON.stringify(failure, undefined, 1)}\n`);
const rate = Math.round(mutants / seconds());
process.stdout.write(
  `fuzz http: ${mutants} mutants, ${accepted} requests accepted, ${rate} mutants/s, ${failure === null ? 'no fault' : 'a fault'}\n`,
);
if (failure !== null) process.exitCode = 1;
