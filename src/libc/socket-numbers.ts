/** Numbers of the socket API of Linux that several files use. */
export const AF_UNIX = 1;
export const AF_INET = 2;
export const AF_INET6 = 10;
export const SOCK_STREAM = 1;
export const SOCK_DGRAM = 2;
export const SOCK_RAW = 3;
export const SOCK_NONBLOCK = 0o4000;
export const SOCK_CLOEXEC = 0o2000000;
export const IPPROTO_RAW = 255;
export const SOL_SOCKET = 1;
export const SO_MARK = 36;
export const MSG_DONTWAIT = 0x40;
