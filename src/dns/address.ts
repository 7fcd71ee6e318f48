/** The address of a socket in host byte order; undefined where it is not IPv4. */
export function addressOf(text: string): number | undefined {
  let address = 0;
  let octet = 0;
  let dots = 0;
  for (let at = 0; at < text.length; at++) {
    const code = text.charCodeAt(at);
    if (code === 46) {
      address = address * 256 + octet;
      octet = 0;
      dots++;
    } else if (code >= 48 && code <= 57) octet = octet * 10 + code - 48;
    else return undefined;
  }
  return dots === 3 ? address * 256 + octet : undefined;
}
