// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * Usage: connections CLIENT_NETNS SERVER_NETNS ADDRESS PORT PORTS. For each line of text `COUNT` on
 * standard input, this program opens COUNT short TCP connections, one after the other. Each connection
 * goes from the client's to the server's network namespace: connect, accept, close by both ends. Then
 * the program prints the nanoseconds per connection. One thread is both client and server, so the CPU of
 * this thread also processes all packets of the connections, during the system calls of the thread.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <err.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static void enter(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0 || setns(fd, CLONE_NEWNET))
		err(1, "%s", path);
	close(fd);
}

static struct sockaddr_in address_of(const char *text, int port)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(port) };

	if (inet_pton(AF_INET, text, &address.sin_addr) != 1)
		errx(1, "%s is not an address", text);
	return address;
}

static long long now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static void connect_once(int epoll, struct sockaddr_in *server)
{
	struct epoll_event event;
	int client = socket(AF_INET, SOCK_STREAM, 0), accepted;

	if (client < 0 || connect(client, (struct sockaddr *)server, sizeof(*server)))
		err(1, "connect");
	if (epoll_wait(epoll, &event, 1, 1000) != 1)
		errx(1, "nothing to accept");
	accepted = accept4(event.data.fd, 0, 0, 0);
	if (accepted < 0)
		err(1, "accept");
	close(accepted);
	close(client);
}

int main(int argc, char **argv)
{
	int epoll = epoll_create1(0), ports, port, one = 1;
	struct sockaddr_in *servers;
	char line[64];
	long next = 0;

	if (argc != 6)
		errx(2, "connections CLIENT_NETNS SERVER_NETNS ADDRESS PORT PORTS");
	port = atoi(argv[4]);
	ports = atoi(argv[5]);
	servers = calloc(ports, sizeof(*servers));
	enter(argv[2]);
	for (int i = 0; i < ports; i++) {
		struct epoll_event event = { .events = EPOLLIN };
		int listener = socket(AF_INET, SOCK_STREAM, 0);

		servers[i] = address_of(argv[3], port + i);
		setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
		if (bind(listener, (struct sockaddr *)&servers[i], sizeof(servers[i])) || listen(listener, 1024))
			err(1, "listen on %s", argv[3]);
		event.data.fd = listener;
		if (epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &event))
			err(1, "epoll");
	}
	enter(argv[1]);
	setvbuf(stdout, 0, _IOLBF, 0);
	puts("ready");
	while (fgets(line, sizeof(line), stdin)) {
		long count = atol(line);
		long long started = now_ns();

		for (long i = 0; i < count; i++)
			connect_once(epoll, &servers[next++ % ports]);
		printf("%.1f\n", (double)(now_ns() - started) / count);
	}
	return 0;
}
