/* SPDX-License-Identifier: MIT */
/* Members of a JSON text by path. The only file of the kit that uses json-c. */
#include "kit_process.h"

#include <json-c/json.h>
#include <stdlib.h>
#include <string.h>

/* Returns the value at "permits.0.token" below root, which owns it; NULL if there is none. */
static struct json_object *descend(struct json_object *root, const char *path)
{
    struct json_object *at = root;
    while (at && *path) {
        size_t length = strcspn(path, ".");
        char name[128];
        if (length >= sizeof(name))
            return NULL;
        memcpy(name, path, length);
        name[length] = 0;
        if (json_object_is_type(at, json_type_array))
            at = json_object_array_get_idx(at, strtoul(name, NULL, 10));
        else
            at = json_object_object_get(at, name);
        path += length + (path[length] == '.');
    }
    return at;
}

static struct json_object *parse(const char *body)
{
    struct json_tokener *tokener = json_tokener_new();
    KIT_CHECK(tokener);
    struct json_object *root = body ? json_tokener_parse_ex(tokener, body, -1) : NULL;
    if (json_tokener_get_error(tokener) != json_tokener_success) {
        json_object_put(root);
        root = NULL;
    }
    json_tokener_free(tokener);
    return root;
}

bool kit_json_valid(const char *body)
{
    struct json_object *root = parse(body);
    bool valid = root || (body && !strcmp(body, "null"));
    json_object_put(root);
    return valid;
}

/* Returns true if the path exists, also with the value null: its parent has a member of that name. */
bool kit_json_has(const char *body, const char *path)
{
    struct json_object *root = parse(body);
    const char *dot = strrchr(path, '.');
    char *parent = dot ? strndup(path, (size_t)(dot - path)) : strdup("");
    struct json_object *at = descend(root, parent);
    const char *last = dot ? dot + 1 : path;
    bool has = json_object_is_type(at, json_type_array) ? strtoul(last, NULL, 10) < json_object_array_length(at)
                                                        : json_object_object_get_ex(at, last, NULL);
    free(parent);
    json_object_put(root);
    return has;
}

int64_t kit_json_int(const char *body, const char *path)
{
    struct json_object *root = parse(body);
    struct json_object *at = descend(root, path);
    int64_t value = json_object_is_type(at, json_type_int) ? json_object_get_int64(at) : INT64_MIN;
    json_object_put(root);
    return value;
}

bool kit_json_true(const char *body, const char *path)
{
    struct json_object *root = parse(body);
    struct json_object *at = descend(root, path);
    bool value = json_object_is_type(at, json_type_boolean) && json_object_get_boolean(at);
    json_object_put(root);
    return value;
}

char *kit_json_text(const char *body, const char *path)
{
    struct json_object *root = parse(body);
    struct json_object *at = descend(root, path);
    char *value = json_object_is_type(at, json_type_string) ? strdup(json_object_get_string(at)) : NULL;
    json_object_put(root);
    return value;
}

bool kit_json_text_is(const char *body, const char *path, const char *expected)
{
    char *value = kit_json_text(body, path);
    bool is = value && !strcmp(value, expected);
    free(value);
    return is;
}

long kit_json_length(const char *body, const char *path)
{
    struct json_object *root = parse(body);
    struct json_object *at = descend(root, path);
    long length = -1;
    if (json_object_is_type(at, json_type_array))
        length = (long)json_object_array_length(at);
    else if (json_object_is_type(at, json_type_object))
        length = json_object_object_length(at);
    json_object_put(root);
    return length;
}

char *kit_json_part(const char *body, const char *path)
{
    struct json_object *root = parse(body);
    struct json_object *at = descend(root, path);
    char *text = at ? strdup(json_object_to_json_string_ext(at, JSON_C_TO_STRING_PLAIN)) : NULL;
    json_object_put(root);
    return text;
}

long kit_json_each(const char *body, const char *path, void (*visit)(void *context, size_t at, const char *element),
                   void *context)
{
    struct json_object *root = parse(body);
    struct json_object *list = descend(root, path);
    long count = json_object_is_type(list, json_type_array) ? (long)json_object_array_length(list) : -1;
    for (long i = 0; i < count; i++)
        visit(context, (size_t)i,
              json_object_to_json_string_ext(json_object_array_get_idx(list, (size_t)i), JSON_C_TO_STRING_PLAIN));
    json_object_put(root);
    return count;
}
