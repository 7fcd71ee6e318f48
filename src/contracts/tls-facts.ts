/**
 * The facts about a TLS connection that rules match (D22a). Names are in lower case, without their last dot.
 */
export type TlsFacts = {
  readonly hello: HelloFacts;
  readonly certificate: CertificateFacts;
};

/** The first message of the client. */
export type HelloFacts = ClientHello | { readonly kind: 'unreadable'; readonly fault: HelloFault };

export type ClientHello = {
  readonly kind: 'hello';
  /** Null if absent. The client may send any name here. */
  readonly sni: string | null;
  /**
   * Encrypted Client Hello (RFC 9849) is offered: the visible name may differ from the real one. GREASE
   * cannot be told apart from ECH.
   */
  readonly ech: boolean;
  /** In the order of the client, without GREASE values. */
  readonly alpn: readonly string[];
  /** Whether TLS 1.3 is offered. */
  readonly offersTls13: boolean;
};

export type HelloFault =
  | 'not_tls'
  | 'malformed'
  /** More than 64 KiB. */
  | 'too_long'
  /** Not complete after 5 s. */
  | 'late'
  /** The client closed the connection before the hello was complete. */
  | 'incomplete'
  /** The server requested another hello, and the second one differs from the first. */
  | 'hello_changed'
  /** The response of the server was not TLS. */
  | 'server_not_tls';

/** The certificate of the server, as far as it is visible. */
export type CertificateFacts =
  /** No handshake with the server was made yet. */
  | { readonly kind: 'unasked' }
  | { readonly kind: 'hidden'; readonly by: 'tls13' | 'resumption' }
  /** The response of the server, or its certificate, cannot be parsed. */
  | { readonly kind: 'unreadable' }
  | SeenCertificate;

export type SeenCertificate = {
  readonly kind: 'seen';
  /** The subject in the string form of RFC 4514. */
  readonly subject: string;
  readonly commonNames: readonly string[];
  /** The dNSName entries of the subject alternative names. */
  readonly dnsNames: readonly string[];
  /** SHA-256 of the DER form of the leaf certificate: 64 hex digits in lower case. */
  readonly fingerprint: string;
  /**
   * Whether the chain leads to one of these PEM certificates now; null stands for the roots of the system.
   */
  readonly isTrusted: (anchors: readonly string[] | null) => boolean;
};
