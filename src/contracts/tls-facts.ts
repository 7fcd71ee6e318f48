/** What is known of a TLS connection when a rule is judged (D22a). Names are lower case, without their last dot. */
export type TlsFacts = {
  readonly hello: HelloFacts;
  readonly certificate: CertificateFacts;
};

/** What a client said first. */
export type HelloFacts = ClientHello | { readonly kind: 'unreadable'; readonly fault: HelloFault };

export type ClientHello = {
  readonly kind: 'hello';
  /** Null where there is none. A claim of the client, and nothing more. */
  readonly sni: string | null;
  /** Encrypted Client Hello (RFC 9849) is offered: the name may not be the one that is meant. GREASE cannot be told from it. */
  readonly ech: boolean;
  /** In the order of the client; GREASE left out. */
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
  /** The client closed before it was complete. */
  | 'incomplete'
  /** The server asked for another hello, and the second says something else than the first. */
  | 'hello_changed'
  /** The server did not answer it by TLS. */
  | 'server_not_tls';

/** What a server showed of itself. */
export type CertificateFacts =
  /** Nobody has asked the server yet. */
  | { readonly kind: 'unasked' }
  | { readonly kind: 'hidden'; readonly by: 'tls13' | 'resumption' }
  /** The server's answer cannot be read, or its certificate cannot. */
  | { readonly kind: 'unreadable' }
  | SeenCertificate;

export type SeenCertificate = {
  readonly kind: 'seen';
  /** The subject in the string form of RFC 4514. */
  readonly subject: string;
  readonly commonNames: readonly string[];
  /** dNSName of the subject's alternative names. */
  readonly dnsNames: readonly string[];
  /** SHA-256 of the leaf's DER: 64 hex digits in lower case. */
  readonly fingerprint: string;
  /** Whether the chain leads to one of these PEM certificates, now; null: to a root of the system. */
  readonly isTrusted: (anchors: readonly string[] | null) => boolean;
};
