import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { FollowedFile } from '#config/policy/followed-file.js';
import { readPolicyFile } from '#config/policy/policy-file.js';
import { temporaryFolder } from '#test/store/temporary-folder.js';

/**
 * Returns a followed policy file. The callback `apply`, which would activate the policy, rejects with each
 * error of `refusals` in turn, and then resolves. If `isFinal` is true, the file does not pass a refused text
 * to `apply` again.
 */
function following(isFinal: boolean, refusals: Error[]) {
  const path = join(temporaryFolder(), 'policy.yaml');
  const seen = { applied: 0, failed: [] as unknown[] };
  const events = {
    read: readPolicyFile,
    apply: async () => {
      seen.applied++;
      const refusal = refusals.shift();
      if (refusal !== undefined) throw refusal;
    },
    isFinal: () => isFinal,
    failed: (failure: unknown) => void seen.failed.push(failure),
  };
  return { file: new FollowedFile(path, events, Promise.resolve()), path, seen };
}

test('a policy file whose changes the node follows is read again after a read error, and equal read errors are reported once', async () => {
  const { file, path, seen } = following(true, []);
  await expect(file.begin()).rejects.toThrow('no such file or directory');
  await expect(file.begin()).rejects.toThrow('no such file or directory');
  expect(seen.failed).toHaveLength(1);
  writeFileSync(path, 'default_policy: deny');
  await file.begin();
  expect(seen).toMatchObject({ applied: 1, failed: [expect.any(Error)] });
});

test('a policy file whose changes the node follows is not activated again with a text that the node refused with a final error', async () => {
  const refusal = new Error('invalid_policy');
  const { file, path, seen } = following(true, [refusal]);
  writeFileSync(path, 'default_policy: deny');
  await expect(file.begin()).rejects.toBe(refusal);
  await expect(file.begin()).rejects.toBe(refusal);
  expect(seen).toEqual({ applied: 1, failed: [refusal] });
});

test('a policy file whose changes the node follows is activated again with a text that the node refused with a temporary error', async () => {
  const refusal = new Error('dataplane_unavailable');
  const { file, path, seen } = following(false, [refusal]);
  writeFileSync(path, 'default_policy: deny');
  await expect(file.begin()).rejects.toBe(refusal);
  await file.begin();
  expect(seen).toEqual({ applied: 2, failed: [refusal] });
});

test('a policy file whose changes the node follows activates no policy after the node has closed the file', async () => {
  const { file, path, seen } = following(false, []);
  writeFileSync(path, 'default_policy: deny');
  file.close();
  await file.begin();
  expect(seen.applied).toBe(0);
});

test('`follow` applies another policy file and its later changes, and keeps to the earlier policy file if the other file cannot be read', async () => {
  const { file, path, seen } = following(true, []);
  const next = join(temporaryFolder(), 'next.yaml');
  const failures: (string | null)[] = [];
  file.watch((failure) => failures.push(failure));
  await file.follow(null);
  await file.begin();
  expect(seen.applied).toBe(0);
  writeFileSync(path, 'default_policy: deny');
  await file.follow(path);
  await expect(file.follow(next)).rejects.toThrow(`read the policy file ${next}: no such file or directory`);
  await file.begin();
  writeFileSync(next, 'default_policy: allow');
  await file.follow(next);
  expect([seen.applied, failures]).toEqual([3, [null, null, null]]);
  file.close();
});
