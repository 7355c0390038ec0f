/* SPDX-License-Identifier: MIT */
/* Malformed input: each row is refused, and the state does not change. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fixture.h"

struct row {
    int status;
    const char *type;
    const char *method;
    const char *path;
    const char *headers; /* NULL: only the client's default headers */
    const char *body;    /* NULL: none */
};

/* The semaphore `victim` has capacity 5; the request `held` holds one unit of it. */
#define REQUESTS          "/v1/requests"
#define VICTIM            "/v1/semaphores/victim"
#define RENEW             "/v1/requests/held/renew"
#define OF_IT             "\"permits\":[{\"semaphore\":\"victim\"}]"
/* An acquire with these additional members in its entry of permits. */
#define SPECIFIC(members) "{\"permits\":[{\"semaphore\":\"victim\"," members "}]}"
#define DEEP              "[[[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]]]"

static const struct row rows[] = {
    /* not JSON, or not one object */
    {400, "malformed", "POST", REQUESTS, NULL, ""},
    {400, "malformed", "POST", REQUESTS, NULL, "   \n"},
    {400, "malformed", "POST", REQUESTS, NULL, "{"},
    {400, "malformed", "POST", REQUESTS, NULL, "{\"permits\""},
    {400, "malformed", "POST", REQUESTS, NULL, "[]"},
    {400, "malformed", "POST", REQUESTS, NULL, "null"},
    {400, "malformed", "POST", REQUESTS, NULL, "7"},
    {400, "malformed", "POST", REQUESTS, NULL, "\"permits\""},
    {400, "malformed", "POST", REQUESTS, NULL, "{" OF_IT "} x"},
    {400, "malformed", "POST", REQUESTS, NULL, "{" OF_IT "}{}"},
    {400, "malformed", "POST", REQUESTS, NULL, "{" OF_IT ",}"},
    {400, "malformed", "POST", REQUESTS, NULL, "{" OF_IT " \"ttl\":1}"},
    {400, "malformed", "POST", REQUESTS, NULL, "{'permits':[{'semaphore':'victim'}]}"},
    {400, "malformed", "POST", REQUESTS, NULL, "{permits:[{\"semaphore\":\"victim\"}]}"},
    {400, "malformed", "POST", REQUESTS, NULL, "{/* */" OF_IT "}"},
    {400, "malformed", "POST", REQUESTS, NULL, "{" OF_IT ",\"ttl\":01}"},
    {400, "malformed", "POST", REQUESTS, NULL, "{" OF_IT ",\"ttl\":+1}"},
    {400, "malformed", "POST", REQUESTS, NULL, "{" OF_IT ",\"ttl\":1.}"},
    {400, "malformed", "POST", REQUESTS, NULL, "{" OF_IT ",\"ttl\":.5}"},
    {400, "malformed", "POST", REQUESTS, NULL, "{" OF_IT ",\"ttl\":-}"},
    {400, "malformed", "POST", REQUESTS, NULL, "{" OF_IT ",\"ttl\":NaN}"},
    {400, "malformed", "POST", REQUESTS, NULL, "{" OF_IT ",\"ttl\":Infinity}"},
    {400, "malformed", "POST", REQUESTS, NULL, "{" OF_IT ",\"ttl\":-Infinity}"},
    {400, "malformed", "POST", REQUESTS, NULL, "{" OF_IT ",\"ttl\":0x10}"},
    {400, "malformed", "POST", REQUESTS, NULL, "{" OF_IT ",\"ttl\":NULL}"},
    {400, "malformed", "POST", REQUESTS, NULL, "{" OF_IT ",\"ttl\":True}"},
    {400, "malformed", "POST", REQUESTS, NULL, "{" OF_IT ",\"owner\":\"a\tb\"}"},
    {400, "malformed", "POST", REQUESTS, NULL, "{" OF_IT ",\"owner\":\"\\x41\"}"},
    {400, "malformed", "POST", REQUESTS, NULL, "{" OF_IT ",\"owner\":\"\\u12\"}"},
    {400, "malformed", "POST", REQUESTS, NULL, "{" OF_IT ",\"owner\\u0000\":\"a\"}"},
    {400, "malformed", "POST", REQUESTS, NULL, "{" OF_IT ",\"owner\":\"\xff\"}"},
    {400, "malformed", "POST", REQUESTS, NULL, "{" OF_IT ",\"owner\":\"\\ud83d\"}"},
    {400, "malformed", "POST", REQUESTS, NULL, "{" OF_IT ",\"owner\":\"\\ud83d\\u0041\"}"},
    {400, "malformed", "POST", REQUESTS, NULL, "{" OF_IT ",\"owner\":\"\\ud83d\\ud83d\\ude00\"}"},
    {400, "malformed", "POST", REQUESTS, NULL, "{" OF_IT ",\"owner\":\"\\uDE00\\uD83D\"}"},
    {400, "malformed", "POST", REQUESTS, NULL, "{" OF_IT ",\"owner\":\"\\ud83d"},
    {422, "invalid", "POST", REQUESTS, NULL, "{" OF_IT ",\"owner\":\"\\ud83d\\ude00\"}"},
    {400, "malformed", "POST", REQUESTS, NULL, "{" OF_IT ",\"owner\":\"\xc3\"}"},
    {400, "malformed", "POST", REQUESTS, NULL, "{" OF_IT ",\"owner\":\"\xc0\xaf\"}"},
    {400, "malformed", "POST", REQUESTS, NULL, "{" OF_IT ",\"x\":" DEEP "}"},
    /* duplicate members */
    {400, "malformed", "POST", REQUESTS, NULL, "{" OF_IT ",\"ttl\":1,\"ttl\":2}"},
    {400, "malformed", "POST", REQUESTS, NULL, "{" OF_IT ",\"ttl\":1,\"\\u0074tl\":2}"},
    {400, "malformed", "POST", REQUESTS, NULL, "{" OF_IT "," OF_IT "}"},
    {400, "malformed", "POST", REQUESTS, NULL, "{\"permits\":[{\"semaphore\":\"victim\",\"count\":1,\"count\":2}]}"},
    {400, "malformed", "PUT", VICTIM, NULL, "{\"capacity\":1,\"capacity\":2}"},
    {400, "malformed", "POST", "/v1/batch", NULL,
     "{\"operations\":[{\"op\":\"release\",\"external_id\":\"held\",\"external_id\":\"held\"}]}"},
    /* acquire: members */
    {422, "invalid", "POST", REQUESTS, NULL, "{}"},
    {422, "invalid", "POST", REQUESTS, NULL, "{\"external_id\":\"a\"}"},
    {422, "invalid", "POST", REQUESTS, NULL, "{\"permits\":[]}"},
    {422, "invalid", "POST", REQUESTS, NULL, "{\"permits\":{}}"},
    {422, "invalid", "POST", REQUESTS, NULL, "{\"permits\":null}"},
    {422, "invalid", "POST", REQUESTS, NULL, "{\"permits\":\"victim\"}"},
    {422, "invalid", "POST", REQUESTS, NULL, "{\"permits\":[\"victim\"]}"},
    {422, "invalid", "POST", REQUESTS, NULL, "{\"permits\":[null]}"},
    {422, "invalid", "POST", REQUESTS, NULL, "{\"permits\":[{}]}"},
    {422, "invalid", "POST", REQUESTS, NULL, "{\"permits\":[[]]}"},
    {422, "invalid", "POST", REQUESTS, NULL, "{" OF_IT ",\"unknown\":1}"},
    {422, "invalid", "POST", REQUESTS, NULL, "{" OF_IT ",\"Owner\":\"a\"}"},
    {422, "invalid", "POST", REQUESTS, NULL, "{" OF_IT ",\"\":1}"},
    {422, "invalid", "POST", REQUESTS, NULL, "{" OF_IT ",\"op\":\"acquire\"}"},
    /* acquire: specific slots */
    {422, "invalid", "POST", REQUESTS, NULL, SPECIFIC("\"slots\":[]")},
    {422, "invalid", "POST", REQUESTS, NULL, SPECIFIC("\"slots\":{}")},
    {422, "invalid", "POST", REQUESTS, NULL, SPECIFIC("\"slots\":1")},
    {422, "invalid", "POST", REQUESTS, NULL, SPECIFIC("\"slots\":\"A1\"")},
    {422, "invalid", "POST", REQUESTS, NULL, SPECIFIC("\"slots\":null")},
    {422, "invalid", "POST", REQUESTS, NULL, SPECIFIC("\"slots\":[null]")},
    {422, "invalid", "POST", REQUESTS, NULL, SPECIFIC("\"slots\":[[1]]")},
    {422, "invalid", "POST", REQUESTS, NULL, SPECIFIC("\"slots\":[{}]")},
    {422, "invalid", "POST", REQUESTS, NULL, SPECIFIC("\"slots\":[true]")},
    {422, "invalid", "POST", REQUESTS, NULL, SPECIFIC("\"slots\":[0]")},
    {422, "invalid", "POST", REQUESTS, NULL, SPECIFIC("\"slots\":[-1]")},
    {422, "invalid", "POST", REQUESTS, NULL, SPECIFIC("\"slots\":[1.0]")},
    {422, "invalid", "POST", REQUESTS, NULL, SPECIFIC("\"slots\":[1e0]")},
    {422, "invalid", "POST", REQUESTS, NULL, SPECIFIC("\"slots\":[2147483648]")},
    {422, "invalid", "POST", REQUESTS, NULL, SPECIFIC("\"slots\":[4294967297]")},
    {422, "invalid", "POST", REQUESTS, NULL, SPECIFIC("\"slots\":[18446744073709551617]")},
    {422, "invalid", "POST", REQUESTS, NULL, SPECIFIC("\"slots\":[99999999999999999999999999]")},
    {422, "invalid", "POST", REQUESTS, NULL, SPECIFIC("\"slots\":[\"\"]")},
    {422, "invalid", "POST", REQUESTS, NULL, SPECIFIC("\"slots\":[\"a\\u0000b\"]")},
    {422, "invalid", "POST", REQUESTS, NULL, SPECIFIC("\"slots\":[\"a\\nb\"]")},
    {422, "invalid", "POST", REQUESTS, NULL, SPECIFIC("\"slots\":[\"a\\u007f\"]")},
    {422, "invalid", "POST", REQUESTS, NULL, SPECIFIC("\"slots\":[\"\\u0085\"]")},
    {422, "invalid", "POST", REQUESTS, NULL, SPECIFIC("\"slots\":[1,1]")},
    {422, "invalid", "POST", REQUESTS, NULL, SPECIFIC("\"slots\":[\"A1\",2,\"A1\"]")},
    {422, "invalid", "POST", REQUESTS, NULL, SPECIFIC("\"slots\":[\"A1\",\"\\u00411\"]")},
    {422, "invalid", "POST", REQUESTS, NULL, SPECIFIC("\"slots\":[1],\"count\":1")},
    {422, "invalid", "POST", REQUESTS, NULL, SPECIFIC("\"slots\":[1],\"any_of\":[2]")},
    {422, "invalid", "POST", REQUESTS, NULL, SPECIFIC("\"slots\":[1],\"adjacent\":true")},
    {422, "invalid", "POST", REQUESTS, NULL, SPECIFIC("\"any_of\":[]")},
    {422, "invalid", "POST", REQUESTS, NULL, SPECIFIC("\"any_of\":[1,1]")},
    {422, "invalid", "POST", REQUESTS, NULL, SPECIFIC("\"any_of\":[0]")},
    {422, "invalid", "POST", REQUESTS, NULL, SPECIFIC("\"any_of\":[1,null]")},
    {422, "invalid", "POST", REQUESTS, NULL, SPECIFIC("\"any_of\":\"A1\"")},
    {422, "invalid", "POST", REQUESTS, NULL, SPECIFIC("\"any_of\":[1],\"count\":0")},
    {422, "invalid", "POST", REQUESTS, NULL, SPECIFIC("\"adjacent\":1")},
    {422, "invalid", "POST", REQUESTS, NULL, SPECIFIC("\"adjacent\":\"true\"")},
    {422, "invalid", "POST", REQUESTS, NULL, SPECIFIC("\"adjacent\":null")},
    {422, "invalid", "POST", REQUESTS, NULL, SPECIFIC("\"Adjacent\":true")},
    {422, "invalid", "POST", REQUESTS, NULL, SPECIFIC("\"slot\":[1]")},
    {400, "malformed", "POST", REQUESTS, NULL, SPECIFIC("\"slots\":[\"\xff\"]")},
    {400, "malformed", "POST", REQUESTS, NULL, SPECIFIC("\"slots\":[\"\xc3\"]")},
    {400, "malformed", "POST", REQUESTS, NULL, SPECIFIC("\"slots\":[\"a\tb\"]")},
    {400, "malformed", "POST", REQUESTS, NULL, SPECIFIC("\"slots\":[01]")},
    {400, "malformed", "POST", REQUESTS, NULL, SPECIFIC("\"slots\":[1,]")},
    {400, "malformed", "POST", REQUESTS, NULL, SPECIFIC("\"slots\":[1],\"slots\":[2]")},
    {400, "malformed", "POST", REQUESTS, NULL, SPECIFIC("\"any_of\":[+1]")},
    /* acquire: more members */
    {422, "invalid", "POST", REQUESTS, NULL, "{\"permits\":[{\"semaphore\":\"victim\"},{\"semaphore\":\"victim\"}]}"},
    {422, "invalid", "POST", REQUESTS, NULL, "{\"permits\":[{\"semaphore\":\"\"}]}"},
    {422, "invalid", "POST", REQUESTS, NULL, "{\"permits\":[{\"semaphore\":7}]}"},
    {422, "invalid", "POST", REQUESTS, NULL, "{\"permits\":[{\"semaphore\":\"vic tim\"}]}"},
    {422, "invalid", "POST", REQUESTS, NULL, "{\"permits\":[{\"semaphore\":\"victim\\u0000\"}]}"},
    {422, "invalid", "POST", REQUESTS, NULL,
     "{\"permits\":[{\"semaphore\":\"v\xc3\xad"
     "ctim\"}]}"},
    {404, "unknown_semaphore", "POST", REQUESTS, NULL, "{\"permits\":[{\"semaphore\":\"Victim\"}]}"},
    {422, "invalid", "POST", REQUESTS, NULL, "{\"permits\":[{\"semaphore\":\"victim\",\"count\":0}]}"},
    {422, "invalid", "POST", REQUESTS, NULL, "{\"permits\":[{\"semaphore\":\"victim\",\"count\":-1}]}"},
    {422, "invalid", "POST", REQUESTS, NULL, "{\"permits\":[{\"semaphore\":\"victim\",\"count\":1.0}]}"},
    {422, "invalid", "POST", REQUESTS, NULL, "{\"permits\":[{\"semaphore\":\"victim\",\"count\":1e0}]}"},
    {422, "invalid", "POST", REQUESTS, NULL, "{\"permits\":[{\"semaphore\":\"victim\",\"count\":\"1\"}]}"},
    {422, "invalid", "POST", REQUESTS, NULL, "{\"permits\":[{\"semaphore\":\"victim\",\"count\":true}]}"},
    {422, "invalid", "POST", REQUESTS, NULL, "{\"permits\":[{\"semaphore\":\"victim\",\"count\":null}]}"},
    {422, "invalid", "POST", REQUESTS, NULL, "{\"permits\":[{\"semaphore\":\"victim\",\"count\":9007199254740992}]}"},
    {422, "invalid", "POST", REQUESTS, NULL,
     "{\"permits\":[{\"semaphore\":\"victim\",\"count\":18446744073709551617}]}"},
    {422, "invalid", "POST", REQUESTS, NULL,
     "{\"permits\":[{\"semaphore\":\"victim\",\"count\":99999999999999999999999999}]}"},
    {422, "invalid", "POST", REQUESTS, NULL, "{\"permits\":[{\"semaphore\":\"victim\",\"count\":1001}]}"},
    {422, "never_satisfiable", "POST", REQUESTS, NULL, "{\"permits\":[{\"semaphore\":\"victim\",\"count\":6}]}"},
    {422, "invalid", "POST", REQUESTS, NULL, "{" OF_IT ",\"external_id\":\"\"}"},
    {422, "invalid", "POST", REQUESTS, NULL, "{" OF_IT ",\"external_id\":\"a b\"}"},
    {422, "invalid", "POST", REQUESTS, NULL, "{" OF_IT ",\"external_id\":\".\"}"},
    {422, "invalid", "POST", REQUESTS, NULL, "{" OF_IT ",\"external_id\":\"..\"}"},
    {422, "invalid", "POST", REQUESTS, NULL, "{" OF_IT ",\"external_id\":\"a\\nb\"}"},
    {422, "invalid", "POST", REQUESTS, NULL, "{" OF_IT ",\"external_id\":null}"},
    {422, "invalid", "POST", REQUESTS, NULL, "{" OF_IT ",\"external_id\":1}"},
    {422, "invalid", "POST", REQUESTS, NULL, "{" OF_IT ",\"external_id\":\"\xc3\xa4\"}"},
    {422, "invalid", "POST", REQUESTS, NULL, "{" OF_IT ",\"owner\":\"\"}"},
    {422, "invalid", "POST", REQUESTS, NULL, "{" OF_IT ",\"owner\":\"a b\"}"},
    {422, "invalid", "POST", REQUESTS, NULL, "{" OF_IT ",\"owner\":false}"},
    {422, "invalid", "POST", REQUESTS, NULL, "{" OF_IT ",\"nonce\":\"\"}"},
    {422, "invalid", "POST", REQUESTS, NULL,
     "{" OF_IT ",\"nonce\":\"12345678901234567890123456789012345678901234567890123456789012345\"}"},
    {422, "invalid", "POST", REQUESTS, NULL, "{" OF_IT ",\"nonce\":\"a\\u0007\"}"},
    {422, "invalid", "POST", REQUESTS, NULL, "{" OF_IT ",\"nonce\":\"\xc3\xa4\"}"},
    {422, "invalid", "POST", REQUESTS, NULL, "{" OF_IT ",\"nonce\":7}"},
    {422, "invalid", "POST", REQUESTS, NULL, "{" OF_IT ",\"nonce\":null}"},
    {422, "invalid", "POST", RENEW, NULL, "{\"nonce\":\"a\"}"},
    {422, "invalid", "POST", REQUESTS, NULL, "{" OF_IT ",\"ttl\":0}"},
    {422, "invalid", "POST", REQUESTS, NULL, "{" OF_IT ",\"ttl\":\"0s\"}"},
    {422, "invalid", "POST", REQUESTS, NULL, "{" OF_IT ",\"ttl\":-1}"},
    {422, "invalid", "POST", REQUESTS, NULL, "{" OF_IT ",\"ttl\":0.0001}"},
    {422, "invalid", "POST", REQUESTS, NULL, "{" OF_IT ",\"ttl\":1e3}"},
    {422, "invalid", "POST", REQUESTS, NULL, "{" OF_IT ",\"ttl\":\"5\"}"},
    {422, "invalid", "POST", REQUESTS, NULL, "{" OF_IT ",\"ttl\":\"5 m\"}"},
    {422, "invalid", "POST", REQUESTS, NULL, "{" OF_IT ",\"ttl\":\"5M\"}"},
    {422, "invalid", "POST", REQUESTS, NULL, "{" OF_IT ",\"ttl\":\"None\"}"},
    {422, "invalid", "POST", REQUESTS, NULL, "{" OF_IT ",\"ttl\":\"owner\"}"},
    {422, "invalid", "POST", REQUESTS, NULL, "{" OF_IT ",\"ttl\":\"\"}"},
    {422, "invalid", "POST", REQUESTS, NULL, "{" OF_IT ",\"ttl\":null}"},
    {422, "invalid", "POST", REQUESTS, NULL, "{" OF_IT ",\"ttl\":[5]}"},
    {422, "invalid", "POST", REQUESTS, NULL, "{" OF_IT ",\"ttl\":\"5m\\u0000\"}"},
    {422, "invalid", "POST", REQUESTS, NULL, "{" OF_IT ",\"ttl\":99999999999999999999}"},
    {422, "invalid", "POST", REQUESTS, NULL, "{" OF_IT ",\"ttl\":86401}"},
    {422, "invalid", "POST", REQUESTS, NULL, "{" OF_IT ",\"ttl\":600000}"},
    {422, "invalid", "POST", REQUESTS, NULL, "{" OF_IT ",\"ttl\":\"1.5s500ms\"}"},
    {422, "invalid", "POST", REQUESTS, NULL, "{" OF_IT ",\"ttl\":\"1.0005s\"}"},
    {422, "invalid", "POST", REQUESTS, NULL, "{" OF_IT ",\"wait\":600000}"},
    {422, "invalid", "POST", RENEW, NULL, "{\"ttl\":600000}"},
    {422, "invalid", "PUT", VICTIM, NULL, "{\"grace\":600000}"},
    {422, "invalid", "POST", REQUESTS, NULL, "{" OF_IT ",\"ttl\":\"101y\"}"},
    {422, "invalid", "POST", REQUESTS, NULL, "{" OF_IT ",\"ttl\":\"99999d\"}"},
    {422, "invalid", "POST", REQUESTS, NULL, "{" OF_IT ",\"wait\":\"11m\"}"},
    {422, "invalid", "POST", REQUESTS, NULL, "{" OF_IT ",\"wait\":600.001}"},
    {422, "invalid", "POST", REQUESTS, NULL, "{" OF_IT ",\"wait\":-1}"},
    {422, "invalid", "POST", REQUESTS, NULL, "{" OF_IT ",\"wait\":\"30\"}"},
    {422, "invalid", "POST", REQUESTS, NULL, "{" OF_IT ",\"wait\":\"none\"}"},
    {422, "invalid", "POST", REQUESTS, NULL, "{" OF_IT ",\"wait\":true}"},
    {422, "invalid", "POST", REQUESTS, NULL, "{" OF_IT ",\"wait\":null}"},
    {422, "key_reused", "POST", REQUESTS, NULL, "{" OF_IT ",\"external_id\":\"held\",\"ttl\":7}"},
    {422, "invalid", "POST", REQUESTS "?wait=1", NULL, "{" OF_IT "}"},
    /* renew */
    {422, "invalid", "POST", RENEW, NULL, "{\"ttl\":0}"},
    {422, "invalid", "POST", RENEW, NULL, "{\"external_id\":\"held\"}"},
    {422, "invalid", "POST", RENEW, NULL, "{\"ttl\":\"3h\"}"},
    {400, "malformed", "POST", RENEW, NULL, "[]"},
    {400, "malformed", "POST", RENEW, NULL, " "},
    {415, "not_json", "POST", RENEW, "Content-Type: text/plain\r\n", "{\"ttl\":60}"},
    /* semaphores */
    {422, "invalid", "PUT", VICTIM, NULL, "{\"capacity\":-1}"},
    {422, "invalid", "PUT", VICTIM, NULL, "{\"capacity\":2.5}"},
    {422, "invalid", "PUT", VICTIM, NULL, "{\"capacity\":\"2\"}"},
    {422, "invalid", "PUT", VICTIM, NULL, "{\"capacity\":null}"},
    {422, "invalid", "PUT", VICTIM, NULL, "{\"capacity\":65537}"},
    {422, "invalid", "PUT", VICTIM, NULL, "{\"capacity\":9007199254740992}"},
    {422, "invalid", "PUT", VICTIM, NULL, "{\"kind\":\"counted\"}"},
    {422, "invalid", "PUT", VICTIM, NULL, "{\"kind\":\"Slotted\"}"},
    {422, "invalid", "PUT", VICTIM, NULL, "{\"kind\":1}"},
    {422, "invalid", "PUT", VICTIM, NULL, "{\"queue\":\"lifo\"}"},
    {422, "invalid", "PUT", VICTIM, NULL, "{\"labels\":\"A1\"}"},
    {422, "invalid", "PUT", VICTIM, NULL, "{\"labels\":null}"},
    {422, "invalid", "PUT", VICTIM, NULL, "{\"labels\":{}}"},
    {422, "invalid", "PUT", VICTIM, NULL, "{\"labels\":[1]}"},
    {422, "invalid", "PUT", VICTIM, NULL, "{\"labels\":[true]}"},
    {422, "invalid", "PUT", VICTIM, NULL, "{\"labels\":[[\"A1\"]]}"},
    {422, "invalid", "PUT", VICTIM, NULL, "{\"labels\":[\"\"]}"},
    {422, "invalid", "PUT", VICTIM, NULL, "{\"labels\":[\"a\\u001f\"]}"},
    {422, "invalid", "PUT", VICTIM, NULL, "{\"labels\":[\"A1\",\"a\\u0000\"]}"},
    {400, "malformed", "PUT", VICTIM, NULL, "{\"labels\":[\"\xff\"]}"},
    {422, "invalid", "PUT", VICTIM, NULL, "{\"name\":\"victim\"}"},
    {422, "invalid", "PUT", VICTIM, NULL, "{\"default_ttl\":0}"},
    {422, "invalid", "PUT", VICTIM, NULL, "{\"default_ttl\":\"none\"}"},
    {422, "invalid", "PUT", VICTIM, NULL, "{\"default_ttl\":\"3h\"}"},
    {422, "invalid", "PUT", VICTIM, NULL, "{\"max_ttl\":\"1s\"}"},
    {422, "invalid", "PUT", VICTIM, NULL, "{\"max_ttl\":null}"},
    {422, "invalid", "PUT", VICTIM, NULL, "{\"grace\":-1}"},
    {422, "invalid", "PUT", VICTIM, NULL, "{\"max_hold\":\"0ms\"}"},
    {422, "invalid", "PUT", VICTIM, NULL, "{\"note\":7}"},
    {422, "invalid", "PUT", "/v1/semaphores/fresh", NULL, "{}"},
    {422, "invalid", "PUT", "/v1/semaphores/fresh", NULL, "{\"note\":\"no capacity\"}"},
    {400, "malformed", "PUT", "/v1/semaphores/fresh", NULL, ""},
    {422, "invalid", "PUT", "/v1/semaphores/fr%20esh", NULL, "{\"capacity\":1}"},
    {422, "invalid", "PUT", "/v1/semaphores/fr%00esh", NULL, "{\"capacity\":1}"},
    {422, "invalid", "PUT", "/v1/semaphores/fr%2Fesh", NULL, "{\"capacity\":1}"},
    {422, "invalid", "PUT", "/v1/semaphores/fr%C3%A9sh", NULL, "{\"capacity\":1}"},
    {422, "invalid", "PUT", "/v1/semaphores/.", NULL, "{\"capacity\":1}"},
    {422, "invalid", "PUT", "/v1/semaphores/%2e%2E", NULL, "{\"capacity\":1}"},
    {422, "invalid", "POST", REQUESTS, NULL, "{\"permits\":[{\"semaphore\":\"..\"}]}"},
    {422, "invalid", "GET", "/v1/requests?semaphore=..", NULL, NULL},
    {422, "invalid", "PUT", "/v1/templates/.", NULL, "{\"capacity\":1}"},
    {422, "invalid", "PUT", "/v1/templates/%2E%2e", NULL, "{\"capacity\":1}"},
    {400, "malformed", "PUT", "/v1/semaphores/fr%esh", NULL, "{\"capacity\":1}"},
    {400, "malformed", "PUT", "/v1/semaphores/fresh%", NULL, "{\"capacity\":1}"},
    {400, "malformed", "PUT", "/v1/semaphores/fresh%4", NULL, "{\"capacity\":1}"},
    {422, "invalid", "PUT", "/v1/semaphores/fresh?force=1", NULL, "{\"capacity\":1}"},
    {422, "invalid", "PUT", VICTIM "/slots", NULL, "{}"},
    {422, "invalid", "PUT", VICTIM "/slots", NULL, "{\"labels\":[]}"},
    {422, "invalid", "PUT", VICTIM "/slots", NULL, "{\"labels\":null}"},
    {422, "invalid", "PUT", VICTIM "/slots", NULL, "{\"labels\":[1]}"},
    {422, "invalid", "PUT", VICTIM "/slots", NULL, "{\"labels\":[\"A1\"],\"from\":1}"},
    {422, "invalid", "PUT", VICTIM "/slots?from=0", NULL, "{\"labels\":[\"A1\"]}"},
    {422, "invalid", "PUT", VICTIM "/slots?from=65537", NULL, "{\"labels\":[\"A1\"]}"},
    {422, "invalid", "PUT", VICTIM "/slots?from=", NULL, "{\"labels\":[\"A1\"]}"},
    {422, "invalid", "PUT", VICTIM "/slots?from=1x", NULL, "{\"labels\":[\"A1\"]}"},
    {422, "invalid", "PUT", VICTIM "/slots?from=-1", NULL, "{\"labels\":[\"A1\"]}"},
    {422, "invalid", "PUT", VICTIM "/slots?from=99999999999999999999", NULL, "{\"labels\":[\"A1\"]}"},
    {422, "invalid", "PUT", VICTIM "/slots?from=1&from=1", NULL, "{\"labels\":[\"A1\"]}"},
    {422, "invalid", "PUT", VICTIM "/slots?after=1", NULL, "{\"labels\":[\"A1\"]}"},
    {422, "invalid", "PUT", VICTIM "/slots", "If-Match: x\r\n", "{\"labels\":[\"A1\"]}"},
    {400, "malformed", "PUT", VICTIM "/slots", NULL, ""},
    {400, "malformed", "PUT", VICTIM "/slots", NULL, "[\"A1\"]"},
    {400, "malformed", "PUT", VICTIM "/slots", NULL, "{\"labels\":[\"\xc0\xaf\"]}"},
    {400, "malformed", "PUT", VICTIM "/slots", NULL, "{\"labels\":[\"A1\"],\"labels\":[\"A2\"]}"},
    {415, "not_json", "PUT", VICTIM "/slots", "Content-Type: text/csv\r\n", "A1,A2"},
    {405, "method_not_allowed", "POST", VICTIM "/slots", NULL, "{\"labels\":[\"A1\"]}"},
    {422, "invalid", "PUT", "/v1/templates/fresh", NULL, "{\"capacity\":1,\"labels\":[\"A1\"]}"},
    {409, "in_use", "DELETE", VICTIM, NULL, NULL},
    {422, "invalid", "DELETE", VICTIM "?force", NULL, NULL},
    {422, "invalid", "DELETE", VICTIM "?force=", NULL, NULL},
    {422, "invalid", "DELETE", VICTIM "?force=1&reason=because", NULL, NULL},
    {422, "invalid", "DELETE", VICTIM "?force=true", NULL, NULL},
    {422, "invalid", "DELETE", VICTIM "?force=true&reason", NULL, NULL},
    {422, "invalid", "DELETE", VICTIM "?force=true&reason=", NULL, NULL},
    {422, "invalid", "DELETE", VICTIM "?force=true&reason=two%0Alines", NULL, NULL},
    {422, "invalid", "DELETE", VICTIM "?force=true&reason=a%00b", NULL, NULL},
    {422, "invalid", "DELETE", VICTIM "?force=true&reason=%7F", NULL, NULL},
    {422, "invalid", "DELETE", VICTIM "?force=true&reason=%C2%85", NULL, NULL},
    {422, "invalid", "DELETE", VICTIM "?force=true&reason=%FF", NULL, NULL},
    {422, "invalid", "DELETE", VICTIM "?force=true&reason=a&reason=a", NULL, NULL},
    {422, "invalid", "DELETE", VICTIM "?force=true&force=true&reason=a", NULL, NULL},
    {422, "invalid", "DELETE", VICTIM "?force=true&why=because", NULL, NULL},
    {422, "invalid", "DELETE", VICTIM "?reason=because", NULL, NULL},
    {422, "invalid", "DELETE", VICTIM "?force=false&reason=because", NULL, NULL},
    {422, "invalid", "DELETE", VICTIM "?force=true&reason=because", NULL, "{\"reason\":\"because\"}"},
    {400, "malformed", "DELETE", VICTIM "?force=true&reason=100%", NULL, NULL},
    {422, "invalid", "DELETE", VICTIM, NULL, "{\"reason\":\"because\"}"},
    /* keys in paths, queries */
    {422, "invalid", "DELETE", "/v1/requests/he%20ld", NULL, NULL},
    {422, "invalid", "DELETE", "/v1/requests/held?confirmed=1", NULL, NULL},
    {422, "invalid", "DELETE", "/v1/requests/held", NULL, "{}"},
    {422, "invalid", "DELETE", "/v1/requests/.", NULL, NULL},
    {422, "invalid", "DELETE", "/v1/requests/%2e%2E", NULL, NULL},
    {422, "invalid", "DELETE", "/v1/requests/%C3%A4", NULL, NULL},
    {400, "malformed", "DELETE", "/v1/requests/held%zz", NULL, NULL},
    {422, "invalid", "GET", "/v1/requests?limit=0", NULL, NULL},
    {422, "invalid", "GET", "/v1/requests?limit=1001", NULL, NULL},
    {422, "invalid", "GET", "/v1/requests?limit=-1", NULL, NULL},
    {422, "invalid", "GET", "/v1/requests?limit=", NULL, NULL},
    {422, "invalid", "GET", "/v1/requests?limit", NULL, NULL},
    {422, "invalid", "GET", "/v1/requests?limit=1&limit=1", NULL, NULL},
    {422, "invalid", "GET", "/v1/requests?after=x", NULL, NULL},
    {422, "invalid", "GET", "/v1/requests?state=acquired", NULL, NULL},
    {422, "invalid", "GET", "/v1/requests?owner=a%20b", NULL, NULL},
    {422, "invalid", "GET", "/v1/requests?owner=", NULL, NULL},
    {422, "invalid", "GET", "/v1/requests?x=1", NULL, NULL},
    {422, "invalid", "GET", "/v1/requests?%6cimit=1", NULL, NULL},
    {400, "malformed", "GET", "/v1/requests?owner=%", NULL, NULL},
    {422, "invalid", "GET", VICTIM "/fence", NULL, NULL},
    /* operators' commands */
    {422, "invalid", "POST", "/v1/requests/held/confirm", NULL, "{\"ttl\":1}"},
    {422, "invalid", "POST", "/v1/requests/held/confirm?now", NULL, NULL},
    {422, "invalid", "POST", "/v1/requests/he%20ld/confirm", NULL, NULL},
    {422, "invalid", "POST", "/v1/requests/held/force-release", NULL, NULL},
    {422, "invalid", "POST", "/v1/requests/held/force-release", NULL, "{\"reason\":[\"a\"]}"},
    {422, "invalid", "POST", "/v1/requests/held/force-release", NULL, "{\"reason\":\"a\\u0000b\"}"},
    {400, "malformed", "POST", "/v1/requests/held/force-release", NULL, "[]"},
    {400, "malformed", "POST", "/v1/requests/held/force-release", NULL, "{\"reason\":\"a\",\"reason\":\"b\"}"},
    {400, "malformed", "POST", "/v1/requests/held/force-release", NULL, "{\"reason\":\"\xff\"}"},
    {415, "not_json", "POST", "/v1/requests/held/force-release", "Content-Type: text/plain\r\n", "because"},
    {422, "invalid", "DELETE", "/v1/requests/held?confirmed=", NULL, NULL},
    {422, "invalid", "DELETE", "/v1/requests/held?confirmed=true&confirmed=true", NULL, NULL},
    {422, "invalid", "POST", VICTIM "/pause", NULL, NULL},
    {422, "invalid", "POST", VICTIM "/pause", NULL, "{\"reason\":true}"},
    {422, "invalid", "POST", VICTIM "/pause", NULL, "{\"reason\":\"a\\u007f\"}"},
    {400, "malformed", "POST", VICTIM "/pause", NULL, "\"because\""},
    {422, "invalid", "POST", VICTIM "/resume", NULL, "{\"reason\":\"x\"}"},
    {400, "malformed", "POST", VICTIM "/resume", NULL, "{"},
    {400, "malformed", "POST", VICTIM "/resume", NULL, "[]"},
    {415, "not_json", "POST", VICTIM "/resume", "Content-Type: text/plain\r\n", "{}"},
    {422, "invalid", "POST", "/v1/semaphores/vic%20tim/resume", NULL, NULL},
    {422, "invalid", "POST", "/v1/fence/bump", NULL, "{}"},
    {422, "invalid", "POST", "/v1/fence/bump?hold=0", NULL, "{\"reason\":\"a\"}"},
    {422, "invalid", "GET", VICTIM "/events?before=1", NULL, NULL},
    {422, "invalid", "GET", "/v1/requests?semaphore=victim&at=now", NULL, NULL},
    {400, "malformed", "GET", "/v1/requests?semaphore=victim&at=%2", NULL, NULL},
    {422, "invalid", "GET", VICTIM "/fence?token=0", NULL, NULL},
    {422, "invalid", "GET", VICTIM "/fence?token=1x", NULL, NULL},
    {422, "invalid", "GET", VICTIM "/fence?token=99999999999999999999", NULL, NULL},
    {422, "invalid", "GET", VICTIM "/fence?token=1&slot=0", NULL, NULL},
    {422, "invalid", "GET", VICTIM "/fence?token=1&slot=65537", NULL, NULL},
    {422, "invalid", "GET", VICTIM "?verbose", NULL, NULL},
    {422, "invalid", "GET", "/healthz?x", NULL, NULL},
    /* content type */
    {415, "not_json", "POST", REQUESTS, "Content-Type: text/plain\r\n", "{" OF_IT "}"},
    {415, "not_json", "POST", REQUESTS, "Content-Type: application/jsonx\r\n", "{" OF_IT "}"},
    {415, "not_json", "POST", REQUESTS, "Content-Type:\r\n", "{" OF_IT "}"},
    {415, "not_json", "PUT", VICTIM, "Content-Type: application/x-www-form-urlencoded\r\n", "{\"capacity\":9}"},
    {415, "not_json", "POST", "/v1/batch", "Content-Type: application/xml\r\n", "{\"operations\":[]}"},
    {415, "not_json", "POST", REQUESTS, "Content-Type: application/json\r\nContent-Type: application/json\r\n",
     "{" OF_IT "}"},
    /* batch as a whole */
    {422, "invalid", "POST", "/v1/batch", NULL, "{}"},
    {422, "invalid", "POST", "/v1/batch", NULL, "{\"operations\":[]}"},
    {422, "invalid", "POST", "/v1/batch", NULL, "{\"operations\":{}}"},
    {422, "invalid", "POST", "/v1/batch", NULL,
     "{\"operations\":[{\"op\":\"release\",\"external_id\":\"held\"}],\"x\":1}"},
    {400, "malformed", "POST", "/v1/batch", NULL, "{\"operations\":[{\"op\":\"release\",\"external_id\":\"held\"}"},
    /* operations of a batch, refused one by one */
    {200, NULL, "POST", "/v1/batch", NULL, "{\"operations\":[{\"op\":\"release\"}]}"},
    {200, NULL, "POST", "/v1/batch", NULL,
     "{\"operations\":[{\"op\":\"release\",\"external_id\":\"held\",\"ttl\":1}]}"},
    {200, NULL, "POST", "/v1/batch", NULL, "{\"operations\":[{\"op\":\"Release\",\"external_id\":\"held\"}]}"},
    {200, NULL, "POST", "/v1/batch", NULL, "{\"operations\":[{\"external_id\":\"held\"}]}"},
    {200, NULL, "POST", "/v1/batch", NULL, "{\"operations\":[null]}"},
    {200, NULL, "POST", "/v1/batch", NULL, "{\"operations\":[{\"op\":\"acquire\",\"wait\":0," OF_IT "}]}"},
    {200, NULL, "POST", "/v1/batch", NULL,
     "{\"operations\":[{\"op\":\"acquire\",\"permits\":[{\"semaphore\":\"victim\",\"slots\":[]}]}]}"},
    {200, NULL, "POST", "/v1/batch", NULL,
     "{\"operations\":[{\"op\":\"renew\",\"external_id\":\"held\",\"ttl\":null}]}"},
};

static void check_row(struct talk *talk, const struct row *row)
{
    say_with(talk, row->status, row->type, row->method, row->path, row->headers, row->body);
    if (row->status == 200)
        cr_assert_eq(number_of(talk, "results.0.status"), 422, "%s: %s", row->body, talk->reply.body);
}

/* The state that must not change: the semaphore's version, and the numbers of requests and semaphores. */
static const char *state_of(struct talk *talk)
{
    say(talk, 200, "GET", VICTIM, NULL);
    int64_t version = number_of(talk, "version");
    say(talk, 200, "GET", "/v1/requests?limit=1000", NULL);
    long requests = kit_json_length(talk->reply.body, "requests");
    say(talk, 200, "GET", "/v1/semaphores", NULL);
    return text("version %lld, %ld requests, %ld semaphores", (long long)version, requests,
                kit_json_length(talk->reply.body, "semaphores"));
}

Test(malformed, every_bad_request_is_refused_and_changes_nothing)
{
    struct kit_permitd *permitd = own_permitd(NULL);
    struct talk talk = talk_to(permitd->port);
    say(&talk, 201, "PUT", VICTIM, "{\"capacity\":5,\"max_ttl\":\"2h\"}");
    say(&talk, 201, "POST", REQUESTS, "{" OF_IT ",\"external_id\":\"held\"}");
    const char *before = state_of(&talk);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        check_row(&talk, &rows[i]);
    cr_assert_str_eq(state_of(&talk), before);
    talk_end(&talk);
    kit_permitd_stop(permitd);
}

/* json-c keeps half a surrogate pair, and would put it before the next text. */
Test(malformed, truncated_text_does_not_affect_the_next_body)
{
    struct talk talk = talk_to(shared_port());
    const char *name = fresh_name("hall");
    refused(&talk, 400, "malformed", "POST", REQUESTS, "{\"external_id\":\"\\ud83d");
    say(&talk, 201, "PUT", semaphore_path(name), "{\"capacity\":1,\"labels\":[\"\\u0041\"]}");
    say(&talk, 200, "GET", text("/v1/semaphores/%s/slots", name), NULL);
    text_is(&talk, "slots.0.label", "A");
    talk_end(&talk);
}

/* ---- sizes ---- */

static const char *padded(size_t bytes)
{
    char *body = kept(malloc(bytes + 1));
    memset(body, ' ', bytes);
    memcpy(body, "{\"ttl\":60}", 10);
    body[bytes] = '\0';
    return body;
}

Test(malformed, body_over_the_limit_is_413_and_the_next_request_is_served)
{
    struct talk talk = talk_to(shared_port());
    const char *path = text("/v1/requests/%s/renew", fresh_name("k"));
    refused(&talk, 404, "unknown_request", "POST", path, padded(256 * 1024));
    refused(&talk, 413, "too_large", "POST", path, padded(256 * 1024 + 1));
    refused(&talk, 413, "too_large", "POST", path, padded(1024 * 1024));
    refused(&talk, 413, "too_large", "POST", path, padded(1024 * 1024 + 1));
    refused(&talk, 413, "too_large", "POST", path, padded(9 * 1024 * 1024));
    refused(&talk, 404, "unknown_request", "POST", path, "{}");
    refused(&talk, 413, "too_large", "GET", "/healthz", padded(256 * 1024 + 1)); /* also on a route without a body */
    refused(&talk, 422, "invalid", "GET", "/healthz", "{}");
    talk_end(&talk);
}

Test(malformed, names_have_at_most_255_bytes)
{
    struct talk talk = talk_to(shared_port());
    char name[300];
    memset(name, 'n', sizeof name);
    const char *fresh = fresh_name("long");
    memcpy(name, fresh, strlen(fresh));
    name[255] = '\0';
    say(&talk, 201, "PUT", semaphore_path(name), "{\"capacity\":1}");
    say(&talk, 201, "POST", REQUESTS,
        text("{\"external_id\":\"%s\",\"owner\":\"%s\",\"permits\":[{\"semaphore\":\"%s\"}]}", name, name, name));
    say(&talk, 200, "GET", request_path(name), NULL);
    name[255] = 'n';
    name[256] = '\0';
    refused(&talk, 422, "invalid", "PUT", semaphore_path(name), "{\"capacity\":1}");
    refused(&talk, 422, "invalid", "DELETE", request_path(name), NULL);
    talk_end(&talk);
}

/* `before`, the list [1,2,...] of `count` numbers, `behind`. */
static const char *long_list(const char *before, int count, const char *behind)
{
    char *list = kept(malloc(16 + (size_t)count * 8 + strlen(before) + strlen(behind)));
    char *at = list + sprintf(list, "%s[", before);
    for (int i = 1; i <= count; i++)
        at += sprintf(at, i > 1 ? ",%d" : "%d", i);
    sprintf(at, "]%s", behind);
    return list;
}

Test(malformed, lists_of_slots_and_labels_are_limited)
{
    struct talk talk = talk_to(shared_port());
    const char *name = fresh_semaphore(&talk, "{\"capacity\":1}");
    const char *slots = text("{\"permits\":[{\"semaphore\":\"%s\",\"slots\":", name);
    const char *any_of = text("{\"permits\":[{\"semaphore\":\"%s\",\"any_of\":", name);
    refused(&talk, 422, "invalid", "POST", REQUESTS, long_list(slots, 1001, "}]}"));
    refused(&talk, 422, "invalid", "POST", REQUESTS, long_list(any_of, 1001, "}]}"));
    char label[300];
    memset(label, 'L', sizeof label);
    label[256] = '\0';
    refused(&talk, 422, "invalid", "PUT", semaphore_path(name), text("{\"labels\":[\"%s\"]}", label));
    refused(&talk, 422, "invalid", "POST", REQUESTS, text("%s[\"%s\"]}]}", slots, label));
    const char *path = text("/v1/semaphores/%s/slots", name);
    char *body = kept(malloc(1024 * 1024 + 2));
    memset(body, ' ', 1024 * 1024 + 1);
    body[1024 * 1024 + 1] = '\0';
    refused(&talk, 413, "too_large", "PUT", path, body);
    body[1024 * 1024] = '\0';
    refused(&talk, 400, "malformed", "PUT", path, body); /* the body is read, and is blank */
    char *many = kept(malloc(65537 * 5 + 32));
    char *at = many + sprintf(many, "{\"labels\":[null");
    for (int i = 0; i < 65536; i++)
        at += sprintf(at, ",null");
    sprintf(at, "]}");
    refused(&talk, 422, "invalid", "PUT", path, many);
    talk_end(&talk);
}

/* ---- below HTTP: the suite `smuggling` has many more ---- */

static void raw(int status, const char *type, const char *bytes)
{
    struct talk talk = talk_to(shared_port());
    cr_assert(kit_http_raw(&talk.http, bytes, strlen(bytes), &talk.reply), "%s: %s", bytes, talk.reply.error);
    cr_assert_eq(talk.reply.status, status, "%.200s: %d: %s", bytes, talk.reply.status, talk.reply.body);
    if (type)
        text_is(&talk, "type", text("/problems/%s", type));
    header_is(&talk, "Content-Type", type ? "application/problem+json" : "application/json");
    talk_end(&talk);
}

#define HOST "Host: localhost\r\n"

Test(malformed, invalid_http_is_answered_with_a_problem)
{
    raw(400, "malformed", "hello\r\n\r\n");
    raw(400, "malformed", "GET /healthz HTTP/9.1\r\n" HOST "\r\n");
    raw(400, "malformed", "GET /healthz HTTX/1.1\r\n" HOST "\r\n");
    raw(400, "malformed", "GET /healthz HTTP/1.1\r\n" HOST "no colon\r\n\r\n");
    raw(400, "malformed", "POST /v1/batch HTTP/1.1\r\n" HOST "Content-Length: x\r\n\r\n");
    raw(400, "malformed", "POST /v1/batch HTTP/1.1\r\n" HOST "Transfer-Encoding: gzip\r\n\r\n{}");
    raw(400, "malformed", "POST /v1/batch HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n");
    raw(413, "too_large", "POST /v1/batch HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n7fffffff\r\n{}");
    raw(200, NULL, "GET http://localhost/healthz HTTP/1.1\r\n" HOST "\r\n");
    raw(200, NULL, "GET /healthz HTTP/1.0\r\n\r\n");
    raw(400, "malformed", "GET * HTTP/1.1\r\n" HOST "\r\n");
    raw(422, "invalid", "GET /healthz HTTP/1.1\r\n" HOST "Content-Length: 2\r\n\r\n{}");
}

Test(malformed, headers_over_16_kib_are_refused)
{
    char *bytes = malloc(40000);
    strcpy(bytes, "GET /healthz HTTP/1.1\r\n" HOST "X-Long: ");
    memset(bytes + strlen(bytes), 'x', 1);
    size_t head = strlen("GET /healthz HTTP/1.1\r\n" HOST "X-Long: ");
    memset(bytes + head, 'x', 17000);
    strcpy(bytes + head + 17000, "\r\n\r\n");
    raw(400, "malformed", bytes);
    memset(bytes + head, 'x', 30000);
    bytes[head + 30000] = '\0'; /* the headers never end */
    raw(400, "malformed", bytes);
    free(bytes);
}
