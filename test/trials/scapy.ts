import { expect } from 'vitest';
import type { Topology } from '#cli/tour/topology.js';

type Namespace = Topology['client'];

/**
 * The python3 of Debian, which can import python3-scapy of Debian. Another python3 may come first in PATH.
 */
const PYTHON = '/usr/bin/python3';

const PRELUDE = `
import json, logging, os, random, socket, struct, sys, time
logging.getLogger('scapy').setLevel(logging.CRITICAL)
from scapy.all import *
conf.verb = 0
`;

/** Runs a Python script with scapy in the network namespace `space`. Returns the output of the script. */
export async function runScapy(space: Namespace, script: string): Promise<string> {
  return (await space.must(PYTHON, '-c', `${PRELUDE}${script}`)).trim();
}

/** Returns the MAC address of a network device. */
export async function macOf(space: Namespace, device: string): Promise<string> {
  const [link] = JSON.parse(await space.must('ip', '-j', 'link', 'show', 'dev', device)) as { address: string }[];
  return link?.address ?? '';
}

/**
 * Records the frames that arrive on `eth0` and contain `TRIAL` with a number. The returned function ends the
 * recording and returns the numbers.
 */
export async function listenForFrames(space: Namespace): Promise<() => Promise<readonly number[]>> {
  const child = space.start(PYTHON, [
    '-c',
    `
import re, select, socket, sys
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)); s.bind(('eth0', 0))
s.setsockopt(socket.SOL_SOCKET, 33, 8 << 20)
seen = set(); print('ready', flush=True)
while True:
    ready, _, _ = select.select([s, sys.stdin], [], [])
    if s in ready:
        frame, address = s.recvfrom(65535)
        if address[2] != socket.PACKET_OUTGOING:
            for number in re.findall(rb'TRIAL(\\d{4})', frame): seen.add(int(number))
    elif sys.stdin in ready: break
print(sorted(seen), flush=True)`,
  ]);
  let output = '';
  child.stdout?.setEncoding('utf8').on('data', (text: string) => {
    output += text;
  });
  const ended = new Promise<void>((resolve) => child.once('exit', () => resolve()));
  await expect.poll(() => output, { timeout: 10_000, interval: 20 }).toContain('ready');
  return async () => {
    // Waits for frames that were sent before and have not arrived yet.
    await new Promise((resolve) => setTimeout(resolve, 300));
    child.stdin?.end();
    await ended;
    return JSON.parse(output.replace('ready\n', '')) as number[];
  };
}
