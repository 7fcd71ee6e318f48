// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * flows FIRST SOURCES ADDRESS PORTS RATE SECONDS
 *
 * Sends RATE UDP datagrams per second for SECONDS seconds, or as many as possible if RATE is 0. The SOURCES
 * source addresses begin at FIRST; each address in turn sends a batch of 64 datagrams. The sockets use
 * IP_FREEBIND, so that no interface needs these addresses. The destinations are PORTS ports of ADDRESS from
 * port 1024 on. Each datagram goes to the next port, so that each datagram opens a flow until all pairs of
 * source address and port were used. The source port depends on the process id, so that another run opens
 * other flows. At the end the process prints the number of datagrams sent.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <err.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define FIRST_PORT 1024
#define BATCH 64
#define TICK_NS 1000000LL

static long long now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static void sleep_until(long long ns)
{
	struct timespec until = { .tv_sec = ns / 1000000000LL, .tv_nsec = ns % 1000000000LL };

	clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
}

static unsigned int address_of(const char *text)
{
	struct in_addr address;

	if (inet_pton(AF_INET, text, &address) != 1)
		errx(1, "%s is not an address", text);
	return ntohl(address.s_addr);
}

static int socket_from(unsigned int address)
{
	struct sockaddr_in own = { .sin_family = AF_INET,
				   .sin_addr.s_addr = htonl(address),
				   .sin_port = htons(4000 + getpid() % 50000) };
	int yes = 1, fd = socket(AF_INET, SOCK_DGRAM, 0);

	if (fd < 0 || setsockopt(fd, IPPROTO_IP, IP_FREEBIND, &yes, sizeof(yes)) ||
	    bind(fd, (struct sockaddr *)&own, sizeof(own)))
		err(1, "socket");
	return fd;
}

int main(int count, char **words)
{
	static char payload[32];
	struct iovec data = { .iov_base = payload, .iov_len = sizeof(payload) };
	struct sockaddr_in to[BATCH];
	struct mmsghdr messages[BATCH] = {};
	unsigned long long sent = 0, round = 0;
	long long started, end, tick;

	if (count != 7)
		errx(2, "flows FIRST SOURCES ADDRESS PORTS RATE SECONDS");
	unsigned int first = address_of(words[1]), address = address_of(words[3]);
	int sources = atoi(words[2]), ports = atoi(words[4]), *fds = calloc(sources, sizeof(*fds));
	long long rate = atoll(words[5]);

	for (int i = 0; i < sources; i++)
		fds[i] = socket_from(first + i);
	for (int i = 0; i < BATCH; i++) {
		messages[i].msg_hdr.msg_name = &to[i];
		messages[i].msg_hdr.msg_namelen = sizeof(to[i]);
		messages[i].msg_hdr.msg_iov = &data;
		messages[i].msg_hdr.msg_iovlen = 1;
		to[i] = (struct sockaddr_in){ .sin_family = AF_INET, .sin_addr.s_addr = htonl(address) };
	}
	started = tick = now_ns();
	end = started + atoll(words[6]) * 1000000000LL;
	while (now_ns() < end) {
		unsigned long long due = rate ? (unsigned long long)((now_ns() - started) * rate / 1000000000LL) : sent + BATCH;

		while (sent < due) {
			int many = due - sent < BATCH ? due - sent : BATCH, done;

			for (int i = 0; i < many; i++)
				to[i].sin_port = htons(FIRST_PORT + (round / sources * BATCH + i) % ports);
			done = sendmmsg(fds[round % sources], messages, many, 0);
			if (done < 0)
				err(1, "sendmmsg");
			sent += done;
			round++;
			if (now_ns() >= end)
				break;
		}
		if (rate)
			sleep_until(tick += TICK_NS);
	}
	printf("%llu\n", sent);
	return 0;
}
