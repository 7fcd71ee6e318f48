import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { FollowedPolicyFile } from '#config/policy-file.js';
import { temporaryFolder } from '#test/store/temporary-folder.js';

/** Follows a file whose policy is refused with these failures in turn, and then taken. */
function following(isFinal: boolean, refusals: Error[]) {
  const path = join(temporaryFolder(), 'policy.yaml');
  const seen = { taken: 0, failed: [] as unknown[] };
  const events = {
    take: async () => {
      seen.taken++;
      const refusal = refusals.shift();
      if (refusal !== undefined) throw refusal;
    },
    isFinal: () => isFinal,
    failed: (failure: unknown) => void seen.failed.push(failure),
  };
  return { file: new FollowedPolicyFile(path, events, Promise.resolve()), path, seen };
}

test('a file that cannot be read is read again when it begins again, and reported once', async () => {
  const { file, path, seen } = following(true, []);
  await expect(file.begin()).rejects.toThrow('no such file or directory');
  await expect(file.begin()).rejects.toThrow('no such file or directory');
  expect(seen.failed).toHaveLength(1);
  writeFileSync(path, 'default_policy: deny');
  await file.begin();
  expect(seen).toMatchObject({ taken: 1, failed: [expect.any(Error)] });
});

test('a text that would be refused again is taken once', async () => {
  const refusal = new Error('invalid_policy');
  const { file, path, seen } = following(true, [refusal]);
  writeFileSync(path, 'default_policy: deny');
  await expect(file.begin()).rejects.toBe(refusal);
  await expect(file.begin()).rejects.toBe(refusal);
  expect(seen).toEqual({ taken: 1, failed: [refusal] });
});

test('a text that was refused for now is taken again', async () => {
  const refusal = new Error('dataplane_unavailable');
  const { file, path, seen } = following(false, [refusal]);
  writeFileSync(path, 'default_policy: deny');
  await expect(file.begin()).rejects.toBe(refusal);
  await file.begin();
  expect(seen).toEqual({ taken: 2, failed: [refusal] });
});

test('a closed file is taken no more', async () => {
  const { file, path, seen } = following(false, []);
  writeFileSync(path, 'default_policy: deny');
  file.close();
  await file.begin();
  expect(seen.taken).toBe(0);
});
