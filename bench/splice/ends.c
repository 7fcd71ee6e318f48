// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * Client and server of TCP connections that begin with a recorded TLS ClientHello, read from the file HELLO.
 *
 * ends serve PORT...
 *     The server replies to the first bytes of a connection with a ServerHello. At PORT, the server then
 *     reads to the end of the stream and replies with the number of bytes received. At PORT + 1, the server
 *     closes the connection after the ServerHello.
 *
 * ends send ADDRESS PORT HELLO SECONDS
 *     The client sends for SECONDS seconds. It prints megabytes per second, measured until the server has
 *     confirmed the number of bytes.
 *
 * ends connect ADDRESS PORT HELLO SECONDS MANY
 *     The client keeps MANY connections open at a time, each for one ServerHello. It prints replies per
 *     second.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <err.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define CHUNK (256 << 10)
#define FILES 65536
#define EVENTS 64
#define TIMEOUT_MS 5000

static char bytes[CHUNK];
/* A ServerHello of TLS 1.2. A TLS client waits for a ServerHello before it sends more, so the splice
 * begins only after this reply. */
static const char server_hello[47] = { 22, 3, 3, 0, 42, 2, 0, 0, 38, 3, 3, [44] = (char)0xc0, [45] = 0x2f };
static long long counts[FILES];
static char is_listener[FILES], is_brief[FILES];

static struct sockaddr_in address_of(const char *text, int port)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(port) };

	if (inet_pton(AF_INET, text, &address.sin_addr) != 1)
		errx(1, "%s is not an address", text);
	return address;
}

static double now(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec + now.tv_nsec / 1e9;
}

static void watch(int epoll, int operation, int fd, int events)
{
	struct epoll_event event = { .events = events, .data.fd = fd };

	if (fd < 0 || fd >= FILES || epoll_ctl(epoll, operation, fd, &event))
		err(1, "watch");
}

static void listen_at(int epoll, int port, int brief)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), one = 1;
	struct sockaddr_in address = address_of("0.0.0.0", port);

	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(fd, (struct sockaddr *)&address, sizeof(address)) || listen(fd, 4096))
		err(1, "listen at %d", port);
	is_listener[fd] = 1;
	is_brief[fd] = brief;
	watch(epoll, EPOLL_CTL_ADD, fd, EPOLLIN);
}

static void accept_all(int epoll, int listener)
{
	int fd;

	while ((fd = accept4(listener, 0, 0, SOCK_NONBLOCK)) >= 0) {
		counts[fd] = 0;
		is_brief[fd] = is_brief[listener];
		watch(epoll, EPOLL_CTL_ADD, fd, EPOLLIN);
	}
}

static void serve_one(int fd)
{
	ssize_t got = recv(fd, bytes, CHUNK, 0);

	if (got < 0 && errno == EAGAIN)
		return;
	if (got > 0) {
		if (counts[fd] == 0)
			send(fd, server_hello, sizeof(server_hello), MSG_NOSIGNAL);
		counts[fd] += got;
		if (!is_brief[fd])
			return;
	} else if (got == 0) {
		send(fd, &counts[fd], sizeof(counts[fd]), MSG_NOSIGNAL);
	}
	close(fd);
}

static void serve(char **ports)
{
	struct epoll_event events[EVENTS];
	int epoll = epoll_create1(0);

	for (; *ports; ports++) {
		listen_at(epoll, atoi(*ports), 0);
		listen_at(epoll, atoi(*ports) + 1, 1);
	}
	puts("up");
	fflush(stdout);
	for (;;) {
		int count = epoll_wait(epoll, events, EVENTS, -1);

		for (int i = 0; i < count; i++) {
			int fd = events[i].data.fd;

			if (is_listener[fd])
				accept_all(epoll, fd);
			else
				serve_one(fd);
		}
	}
}

static void send_for(struct sockaddr_in *server, const char *hello, ssize_t length, double seconds)
{
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	long long sent = length, arrived = 0;
	double begun;

	if (connect(fd, (struct sockaddr *)server, sizeof(*server)) || send(fd, hello, length, 0) != length)
		err(1, "connect");
	for (begun = now(); now() < begun + seconds;) {
		ssize_t count = send(fd, bytes, CHUNK, MSG_NOSIGNAL);

		if (count < 0)
			err(1, "send");
		sent += count;
	}
	shutdown(fd, SHUT_WR);
	if (recv(fd, bytes, sizeof(server_hello), MSG_WAITALL) != sizeof(server_hello))
		errx(1, "no hello came");
	if (recv(fd, &arrived, sizeof(arrived), MSG_WAITALL) != sizeof(arrived) || arrived != sent)
		errx(1, "%lld of %lld bytes came", arrived, sent);
	printf("%.1f\n", sent / (now() - begun) / 1e6);
}

static int dial(int epoll, struct sockaddr_in *server)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);

	if (connect(fd, (struct sockaddr *)server, sizeof(*server)) && errno != EINPROGRESS)
		err(1, "connect");
	watch(epoll, EPOLL_CTL_ADD, fd, EPOLLOUT);
	return 1;
}

static void connect_for(struct sockaddr_in *server, const char *hello, ssize_t length, double seconds, int many)
{
	int epoll = epoll_create1(0), open = 0;
	struct epoll_event events[EVENTS];
	double begun = now(), until = begun + seconds;
	long answered = 0;

	while (open > 0 || now() < until) {
		int count;

		while (open < many && now() < until)
			open += dial(epoll, server);
		count = epoll_wait(epoll, events, EVENTS, TIMEOUT_MS);
		if (count == 0)
			errx(1, "%d connections are not answered", open);
		for (int i = 0; i < count; i++) {
			int fd = events[i].data.fd;
			ssize_t got;

			if (events[i].events & EPOLLOUT) {
				if (send(fd, hello, length, MSG_NOSIGNAL) != length)
					err(1, "send");
				watch(epoll, EPOLL_CTL_MOD, fd, EPOLLIN);
				continue;
			}
			got = recv(fd, bytes, CHUNK, 0);
			if (got < 0)
				err(1, "receive");
			if (got > 0) {
				answered++;
				continue;
			}
			close(fd);
			open--;
		}
	}
	printf("%.1f\n", answered / (now() - begun));
}

int main(int argc, char **argv)
{
	static char hello[1 << 16];
	struct sockaddr_in server;
	size_t length;
	FILE *file;

	if (argc >= 3 && !strcmp(argv[1], "serve"))
		serve(argv + 2);
	if (argc < 6)
		errx(2, "ends serve|send|connect ...");
	server = address_of(argv[2], atoi(argv[3]));
	file = fopen(argv[4], "r");
	if (!file)
		err(1, "%s", argv[4]);
	length = fread(hello, 1, sizeof(hello), file);
	if (!strcmp(argv[1], "send"))
		send_for(&server, hello, length, atof(argv[5]));
	else if (argc == 7)
		connect_for(&server, hello, length, atof(argv[5]), atoi(argv[6]));
	return 0;
}
