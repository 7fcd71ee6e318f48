/**
 * The facts about a TLS connection that rules match (D22a). Hostnames are in lower case, without a final dot.
 */
export type TlsFacts = {
  readonly hello: HelloFacts;
  readonly certificate: CertificateFacts;
};

/** The facts of the ClientHello, or the fault that prevents its parsing. */
export type HelloFacts = ClientHello | { readonly kind: 'unreadable'; readonly fault: HelloFault };

export type ClientHello = {
  readonly kind: 'hello';
  /**
   * The hostname of the SNI extension; null if the client sent no SNI. The client may send any hostname in
   * it.
   */
  readonly sni: string | null;
  /**
   * Whether the client offers Encrypted Client Hello (RFC 9849). Then the SNI may differ from the real
   * hostname. A GREASE extension looks like ECH, so it also sets this field.
   */
  readonly ech: boolean;
  /** The protocols of the ALPN extension in the order of the client, without GREASE values. */
  readonly alpn: readonly string[];
  /** Whether the client offers TLS 1.3. */
  readonly offersTls13: boolean;
};

export type HelloFault =
  | 'not_tls'
  | 'malformed'
  /** The ClientHello is larger than 64 KiB. */
  | 'too_long'
  /** The ClientHello is not complete 5 s after the connection was accepted. */
  | 'late'
  /** The client closed the connection before the ClientHello was complete. */
  | 'incomplete'
  /** The server requested a second ClientHello, and the second one differs from the first. */
  | 'hello_changed'
  /** The first bytes from the server are not a TLS record. */
  | 'server_not_tls';

/** The facts of the server certificate, if the service plane can read the certificate. */
export type CertificateFacts =
  /** The service plane has not yet started a TLS handshake with the server. */
  | { readonly kind: 'unasked' }
  | { readonly kind: 'hidden'; readonly by: 'tls13' | 'resumption' }
  /** The service plane cannot parse the response or the certificate of the server. */
  | { readonly kind: 'unreadable' }
  | SeenCertificate;

export type SeenCertificate = {
  readonly kind: 'seen';
  /** The subject of the certificate in the string form of RFC 4514. */
  readonly subject: string;
  readonly commonNames: readonly string[];
  /** The dNSName entries among the subject alternative names of the certificate. */
  readonly dnsNames: readonly string[];
  /** SHA-256 of the leaf certificate in DER form: 64 hexadecimal digits in lower case. */
  readonly fingerprint: string;
  /**
   * Returns whether the certificate chain now leads to one of the PEM certificates in `anchors`. Null stands
   * for the root certificates of the system.
   */
  readonly isTrusted: (anchors: readonly string[] | null) => boolean;
};
