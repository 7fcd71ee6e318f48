import { createHash } from 'node:crypto';

/** MAC address of a station behind another port of the bridge. */
export const STATION = '02:00:00:00:00:77';

const SENDER = '020000000066';
const EVERY_STATION = 'ffffffffffff';
const KNOWN = STATION.replaceAll(':', '');
const UNKNOWN = '0200000000aa';
/** Returns an IPv4 and a UDP header in hexadecimal, from 10.77.1.2, for 16 bytes of data. */
function IPV4(destination: string, fragment = '0000'): string {
  const header = Buffer.from(`4500002c0001${fragment}401100000a4d0102${destination}`, 'hex');
  let sum = 0;
  for (let at = 0; at < header.length; at += 2) sum += header.readUInt16BE(at);
  sum = (sum & 0xffff) + (sum >> 16);
  header.writeUInt16BE(~((sum & 0xffff) + (sum >> 16)) & 0xffff, 10);
  return `${header.toString('hex')}1388000900180000`;
}
const IPV6 = (destination: string): string => `6000000000103b40fe800000000000000000000000000001${destination}`;

/**
 * Returns a frame whose last 16 bytes are a hash of its name, so that they differ from those of every other
 * frame.
 */
const frame = (name: string, destination: string, behindAddresses: string): Uint8Array => {
  // The hash has 16 bytes, which equals the data length in the UDP headers.
  const own = createHash('md5').update(name).digest();
  return Buffer.concat([Buffer.from(`${destination}${SENDER}${behindAddresses}`, 'hex'), own]);
};
const attack = (name: string, destination: string, behindAddresses: string): [string, Uint8Array] => [
  name,
  frame(name, destination, behindAddresses),
];

/** Frames that a bridge would forward from one port to another. */
export const SWITCHED_FRAMES = {
  attacks: Object.fromEntries([
    attack('IPv4 to every station', EVERY_STATION, `0800${IPV4('ffffffff')}`),
    attack('directed broadcast of IPv4', EVERY_STATION, `0800${IPV4('0a4d02ff')}`),
    attack('multicast of IPv4', '01005e010203', `0800${IPV4('ef010203')}`),
    attack('local multicast of IPv4', '01005e0000fb', `0800${IPV4('e00000fb')}`),
    attack('unicast of IPv4', KNOWN, `0800${IPV4('0a4d0202')}`),
    attack('routed nowhere, IPv4', KNOWN, `0800${IPV4('c6336401')}`),
    attack('loopback over IPv4', KNOWN, `0800${IPV4('7f000001')}`),
    attack('unknown station of IPv4', UNKNOWN, `0800${IPV4('0a4d0202')}`),
    attack('first fragment of IPv4', KNOWN, `0800${IPV4('0a4d0202', '2000')}`),
    attack('multicast in unicast frame', KNOWN, `0800${IPV4('ef010203')}`),
    attack('unicast in broadcast frame', EVERY_STATION, `0800${IPV4('0a4d0202')}`),
    attack('question of ARP', EVERY_STATION, `08060001080006040001${SENDER}0a4d0102${'000000000000'}0a4d0202`),
    attack('answer of ARP', KNOWN, `08060001080006040002${SENDER}0a4d0202${KNOWN}0a4d0202`),
    attack('unicast of IPv6', KNOWN, `86dd${IPV6('fe800000000000000000000000000002')}`),
    attack('multicast of IPv6', '333300000001', `86dd${IPV6('ff020000000000000000000000000001')}`),
    attack('tag of a VLAN', KNOWN, `81000005${'0800'}${IPV4('0a4d0202')}`),
    attack('tag of priority', EVERY_STATION, `81000000${'0800'}${IPV4('ffffffff')}`),
    attack('two tags', EVERY_STATION, `88a80005${'81000005'}${'0800'}${IPV4('ffffffff')}`),
    attack('PPPoE discovery', EVERY_STATION, '8863110900000004'),
    attack('MPLS unicast', KNOWN, `884700000140${IPV4('0a4d0202')}`),
    attack('unknown EtherType', EVERY_STATION, '88b500000000'),
    attack('LLC and SNAP', EVERY_STATION, '0030aaaa030000000800'),
    attack('LLDP neighbours', '0180c200000e', '88cc0207'),
  ]) as Readonly<Record<string, Uint8Array>>,
  last: frame('the last frame', EVERY_STATION, '88b600000000'),
} as const;
