import { expect, test } from 'vitest';
import { dumped } from '#dataplane/routes/addresses.js';

test('a request for the addresses of a family that the kernel does not support returns no addresses, not even those of other families', () => {
  // No kernel has addresses of AF_IPX. Linux with `ipv6.disable=1` has none of AF_INET6 in the same way.
  const AF_IPX = 4;
  const IFA_ADDRESS = 1;
  expect(dumped(AF_IPX, IFA_ADDRESS, (view) => view.byteLength)).toEqual(new Map());
});
