export const CONTENT = { changeCipherSpec: 20, alert: 21, handshake: 22, applicationData: 23, heartbeat: 24 } as const;

export const HANDSHAKE = {
  clientHello: 1,
  serverHello: 2,
  newSessionTicket: 4,
  certificate: 11,
  serverKeyExchange: 12,
  certificateRequest: 13,
  serverHelloDone: 14,
  certificateStatus: 22,
  supplementalData: 23,
} as const;

export const EXTENSION = {
  serverName: 0,
  alpn: 16,
  padding: 21,
  preSharedKey: 41,
  earlyData: 42,
  supportedVersions: 43,
  cookie: 44,
  keyShare: 51,
  encryptedClientHello: 0xfe0d,
} as const;

export const TLS13 = 0x0304;

/**
 * Returns true for a GREASE value: 0x0a0a, 0x1a1a … 0xfafa (RFC 8701). Clients send these values so that
 * servers learn to ignore unknown values.
 */
export function isGrease(value: number): boolean {
  return (value & 0x0f0f) === 0x0a0a && value >>> 8 === (value & 0xff);
}
