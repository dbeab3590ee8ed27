/* proxy_protocol: both versions, whole, cut at each byte, and malformed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proxy_protocol.h"

#define V2 "\r\n\r\n\0\r\nQUIT\n"

static struct proxy_header header;
static const char *why;

/* Every beginning of a header wants more, the whole is done, and bytes behind it stay. */
static void good(struct slice bytes, size_t length, const char *source, int port)
{
    char text[IP_TEXT];
    size_t used;
    for (size_t n = 0; n < length; n++) {
        char *copy = malloc(n + 1); /* for the sanitizer: nothing is read behind it */
        memcpy(copy, bytes.p, n);
        struct slice part = { copy, n };
        assert_int_equal(proxy_protocol_parse(part, &header, &used, &why), PROXY_MORE);
        free(copy);
    }
    assert_int_equal(proxy_protocol_parse(bytes, &header, &used, &why), PROXY_DONE);
    assert_int_equal(used, length);
    assert_string_equal(ip_text(&header.source, text), source);
    assert_int_equal(header.source_port, port);
}

static void v1_good(const char *line, const char *source, int port)
{
    char bytes[256];
    int n = snprintf(bytes, sizeof bytes, "%s\r\nGET / HTTP/1.1\r\n", line);
    good((struct slice){ bytes, (size_t)n }, strlen(line) + 2, source, port);
}

static void takes_version_1(void **state)
{
    char text[IP_TEXT];
    (void)state;
    v1_good("PROXY TCP4 192.0.2.1 198.51.100.7 56324 443", "192.0.2.1", 56324);
    assert_string_equal(ip_text(&header.destination, text), "198.51.100.7");
    assert_int_equal(header.destination_port, 443);
    v1_good("PROXY TCP4 255.255.255.255 255.255.255.255 65535 65535", "255.255.255.255", 65535);
    v1_good("PROXY TCP6 2001:db8::1 2001:db8::2 0 443", "2001:db8::1", 0);
    v1_good("PROXY TCP6 ::ffff:192.0.2.1 ::1 5 443", "192.0.2.1", 5);
    v1_good("PROXY UNKNOWN", "", 0);
    v1_good("PROXY UNKNOWN ffff::1 what ever 1 2", "", 0);
}

static void is_bad(struct slice bytes)
{
    size_t used;
    char *copy = malloc(bytes.n + 1);
    memcpy(copy, bytes.p, bytes.n);
    why = NULL;
    assert_int_equal(proxy_protocol_parse((struct slice){ copy, bytes.n }, &header, &used, &why),
                     PROXY_BAD);
    assert_non_null(why);
    assert_int_equal(header.source.size, 0);
    free(copy);
}

static void refuses_what_is_not_version_1(void **state)
{
    static const char *const lines[] = {
        "PROXY TCP4 192.0.2.1 198.51.100.7 56324 443\n",
        "PROXY TCP4  192.0.2.1 198.51.100.7 56324 443\r\n",
        "PROXY TCP4 192.0.2.1 198.51.100.7 56324 443 \r\n",
        "PROXY TCP4 192.0.2.1 198.51.100.7 56324 443 1\r\n",
        "PROXY TCP4 192.0.2.1 198.51.100.7 56324\r\n",
        "PROXY TCP4 192.0.2.1 198.51.100.7 65536 443\r\n",
        "PROXY TCP4 192.0.2.1 198.51.100.7 080 443\r\n",
        "PROXY TCP4 192.0.2.1 198.51.100.7 -1 443\r\n",
        "PROXY TCP4 192.0.2.1 198.51.100.7 +1 443\r\n",
        "PROXY TCP4 192.0.2.1 ::1 1 443\r\n",
        "PROXY TCP4 ::1 ::1 1 443\r\n",
        "PROXY TCP6 192.0.2.1 192.0.2.1 1 443\r\n",
        "PROXY TCP4 192.0.2 198.51.100.7 1 443\r\n",
        "PROXY tcp4 192.0.2.1 198.51.100.7 1 443\r\n",
        "PROXY UDP4 192.0.2.1 198.51.100.7 1 443\r\n",
        "PROXY UNKNOWNX\r\n",
        "PROXY \r\n",
        "PROXY TCP4\r\n",
        "PROXY\tTCP4 192.0.2.1 198.51.100.7 1 443\r\n",
        "proxy TCP4 192.0.2.1 198.51.100.7 1 443\r\n",
        "GET / HTTP/1.1\r\n\r\n",
        "P\r\n",
        "PROXY \n",
        "\n",
        "\r\r",
    };
    char longer[256];
    (void)state;
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        is_bad(slice_of(lines[i]));
    memset(longer, 'x', sizeof longer);
    memcpy(longer, "PROXY UNKNOWN ", 14);
    is_bad((struct slice){ longer, 107 });
    memcpy(longer + 105, "\r\n", 2);
    good((struct slice){ longer, sizeof longer }, 107, "", 0);
}

/* --- version 2 --- */

static char bytes[8192];
static size_t length;

static void begin(unsigned version_command, unsigned family)
{
    memcpy(bytes, V2, 12);
    bytes[12] = (char)version_command;
    bytes[13] = (char)family;
    length = 16;
}

static void put(const void *p, size_t n)
{
    memcpy(bytes + length, p, n);
    length += n;
}

static struct slice end(void)
{
    bytes[14] = (char)((length - 16) >> 8);
    bytes[15] = (char)(length - 16);
    return (struct slice){ bytes, length };
}

static void put_inet(void)
{
    put("\xc0\x00\x02\x01\xc6\x33\x64\x07\xdc\x04\x01\xbb", 12);
}

static void put_tlv(unsigned type, const void *p, size_t n)
{
    char head[3] = { (char)type, (char)(n >> 8), (char)n };
    put(head, 3);
    put(p, n);
}

static void takes_version_2(void **state)
{
    char text[IP_TEXT];
    (void)state;
    begin(0x21, 0x11);
    put_inet();
    end();
    memcpy(bytes + length, "\x16\x03\x01", 3);
    good((struct slice){ bytes, length + 3 }, length, "192.0.2.1", 56324);
    assert_string_equal(ip_text(&header.destination, text), "198.51.100.7");
    assert_int_equal(header.destination_port, 443);

    begin(0x21, 0x21);
    put("\x20\x01\x0d\xb8\0\0\0\0\0\0\0\0\0\0\0\x01", 16);
    put("\x20\x01\x0d\xb8\0\0\0\0\0\0\0\0\0\0\0\x02", 16);
    put("\x00\x50\x01\xbb", 4);
    put_tlv(1, "h2", 2);
    put_tlv(4, "\0\0\0", 3);
    put_tlv(0xff, "", 0);
    good(end(), length, "2001:db8::1", 80);

    begin(0x20, 0x00); /* LOCAL */
    good(end(), length, "", 0);
    begin(0x20, 0x11); /* what it says is ignored */
    put_inet();
    good(end(), length, "", 0);
    begin(0x20, 0x77);
    put("abc", 3);
    good(end(), length, "", 0);
    begin(0x21, 0x00); /* UNSPEC */
    put("anything", 8);
    good(end(), length, "", 0);
    begin(0x21, 0x31); /* UNIX */
    char paths[216] = "/var/run/a.sock";
    put(paths, sizeof paths);
    put_tlv(2, "shop.test", 9);
    good(end(), length, "", 0);
}

/* The checksum is made bit by bit here, another way than in the parser. */
static void verifies_the_checksum(void **state)
{
    (void)state;
    begin(0x21, 0x11);
    put_inet();
    size_t at = length + 3;
    put_tlv(3, "\0\0\0\0", 4);
    put_tlv(1, "http/1.1", 8);
    end();
    uint32_t crc = 0xffffffff; /* bit by bit, from the definition */
    for (size_t i = 0; i < length; i++)
        for (int bit = 0; bit < 8; bit++) {
            uint32_t one = ((uint8_t)bytes[i] >> bit & 1) ^ (crc & 1);
            crc = crc >> 1 ^ (one ? 0x82f63b78 : 0);
        }
    crc = ~crc;
    for (int i = 0; i < 4; i++)
        bytes[at + (size_t)i] = (char)(crc >> (24 - 8 * i));
    good((struct slice){ bytes, length }, length, "192.0.2.1", 56324);
    bytes[17] ^= 1;
    is_bad((struct slice){ bytes, length });
    bytes[17] ^= 1;
    bytes[at] ^= 1;
    is_bad((struct slice){ bytes, length });
    begin(0x21, 0x11);
    put_inet();
    put_tlv(3, "\0\0\0", 3);
    is_bad(end());
}

static void refuses_what_is_not_version_2(void **state)
{
    (void)state;
    static const unsigned commands[] = { 0x11, 0x31, 0x22, 0x2f, 0x01 };
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        begin(commands[i], 0x11);
        put_inet();
        is_bad(end());
    }
    static const unsigned families[] = { 0x10, 0x12, 0x22, 0x32, 0x41, 0x13, 0x01 };
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        begin(0x21, families[i]);
        put_inet();
        is_bad(end());
    }
    begin(0x21, 0x11); /* too short for its addresses */
    put("\xc0\x00\x02\x01", 4);
    is_bad(end());
    begin(0x21, 0x21);
    put_inet();
    is_bad(end());
    begin(0x21, 0x11); /* TLVs that do not fit */
    put_inet();
    put("\x01", 1);
    is_bad(end());
    begin(0x21, 0x11);
    put_inet();
    put("\x01\x00\x05"
        "abcd",
        7);
    is_bad(end());
    begin(0x21, 0x11); /* too long: refused by its fixed part */
    put_inet();
    bytes[14] = bytes[15] = (char)0xff;
    is_bad((struct slice){ bytes, 16 });
    begin(0x21, 0x11);
    bytes[11] = 'x';
    is_bad((struct slice){ bytes, 16 });
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(takes_version_1),
        cmocka_unit_test(refuses_what_is_not_version_1),
        cmocka_unit_test(takes_version_2),
        cmocka_unit_test(verifies_the_checksum),
        cmocka_unit_test(refuses_what_is_not_version_2),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
