/**
 * The properties of a TLS connection that rules match (D22a). Hostnames are in lower case, without a final
 * dot.
 */
export type TlsFacts = {
  readonly hello: HelloFacts;
  readonly certificate: CertificateFacts;
};

/**
 * The properties of the ClientHello, or the fault because of which the service plane (TLS and HTTP
 * inspection) could not read it.
 */
export type HelloFacts = ClientHello | { readonly kind: 'unreadable'; readonly fault: HelloFault };

export type ClientHello = {
  readonly kind: 'hello';
  /**
   * The hostname in the SNI extension; null if the client sent no SNI. The client can send any hostname
   * there, so it proves nothing about the server.
   */
  readonly sni: string | null;
  /**
   * Whether the client offers Encrypted Client Hello (ECH, RFC 9849). `sni` is then the name of the outer
   * ClientHello, and the server may act on a hidden name. Only the server can tell ECH from the GREASE
   * extension that browsers send if they have no ECH key.
   */
  readonly ech: boolean;
  /** The protocols of the ALPN extension in the order of the client, without GREASE values. */
  readonly alpn: readonly string[];
  readonly offersTls13: boolean;
};

export type HelloFault =
  | 'not_tls'
  | 'malformed'
  /** The ClientHello is larger than 64 KiB. */
  | 'too_long'
  /**
   * The service plane (TLS and HTTP inspection) had not received the whole ClientHello 5 s after it accepted
   * the connection.
   */
  | 'late'
  /** The client closed the connection before the ClientHello was complete. */
  | 'incomplete'
  /**
   * The server requested a second ClientHello, and the second one differs from the first in a way that RFC
   * 8446, 4.1.2 does not permit. Or the server then requested a third one.
   */
  | 'hello_changed'
  /** The first bytes from the server are not a TLS record. */
  | 'server_not_tls';

/**
 * The properties of the server certificate, or why the service plane does not know them. `hidden`: TLS 1.3
 * encrypts the certificate, or the server resumed a session and sent none.
 */
export type CertificateFacts =
  /** The node has not yet started a TLS handshake with the server. */
  | { readonly kind: 'unasked' }
  | { readonly kind: 'hidden'; readonly by: 'tls13' | 'resumption' }
  /** The service plane cannot parse the handshake messages or the certificate of the server. */
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
   * Returns whether the certificate chain leads to one of the PEM certificates in `anchors` at the time of
   * the call. Null stands for the root certificates of the system.
   */
  readonly isTrusted: (anchors: readonly string[] | null) => boolean;
};
