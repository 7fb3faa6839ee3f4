/*
 * Package infer for C, C++, Swift, Kotlin (over JNI) and everything that calls C. It scores rows with a
 * model that shaver has pruned, directly from its compact file. The logits are those of package infer, bit
 * for bit, on the same processor.
 *
 *     go build -buildmode=c-shared  -o libshaver.so ./infer/c
 *     go build -buildmode=c-archive -o libshaver.a  ./infer/c
 *
 * Threads: every function may be called from any thread, and any number of threads may use one model at once.
 * The library starts threads of its own, so a process must not fork without exec after it has loaded it.
 *
 * Errors: a function that has the argument error reports its failure by its result. It then sets *error to a
 * message in UTF-8 that names the file, row or field and says what was expected. The caller frees the message with
 * shaver_free. After a success, *error is NULL. error itself may be NULL.
 *
 * Ownership: the library keeps no pointer of its caller after a call, except data of shaver_open_bytes.
 */
#ifndef SHAVER_H
#define SHAVER_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* An open model. 0 is no model. A number is never used again, so the use of a closed model is an error. */
typedef uint64_t shaver_model;

typedef const char shaver_text; /* text in UTF-8 that ends with a 0 byte */
typedef const uint8_t shaver_byte;
typedef const int32_t shaver_id;
typedef const float shaver_value;

/*
 * shaver_open opens the safetensors file at path, compact or dense, and returns the model, or 0 after an error. It
 * maps the file where the system can, so the file must not be written to or truncated until shaver_close.
 * Replace it by renaming a new file to its name.
 */
shaver_model shaver_open(shaver_text *path, char **error);

/*
 * shaver_open_bytes is shaver_open for the size bytes of such a file at data, for example an asset of an
 * application. The caller keeps data unchanged until shaver_close. name stands for the file in errors.
 */
shaver_model shaver_open_bytes(shaver_text *name, shaver_byte *data, size_t size, char **error);

/* shaver_close waits for calls that use the model, and closes it. It does nothing if the model is not open. */
void shaver_close(shaver_model model);

/*
 * shaver_shape returns the number of fields of the model, or -1 if it is not open. It sets *ids to the number of
 * ids of a row, and *dense to the number of dense inputs. Both may be NULL. The number of ids is that of the fields,
 * unless a field is a list.
 */
int32_t shaver_shape(shaver_model model, int32_t *ids, int32_t *dense);

/*
 * shaver_field describes a field, counted from 0, and returns 0, or -1 if there is none or the model is not open. It sets
 * *size to the number of features, so that ids are 0 to *size - 1, *length to the number of ids in a row, which
 * is 1 if the field is not a list, and *pad to the id that fills a list, or -1. Each may be NULL.
 */
int32_t shaver_field(shaver_model model, int32_t field, int32_t *size, int32_t *length, int32_t *pad);

/*
 * shaver_pads_front returns 1 if the training filled the lists of a field with pads at their front. It returns 0 if it
 * filled them at their end or the file does not say it, and -1 if there is no such field or the model is not open.
 */
int32_t shaver_pads_front(shaver_model model, int32_t field);

/*
 * shaver_field_name returns the name of a field, counted from 0. The caller frees it with shaver_free. It is NULL if
 * there is none, the file does not name its fields, or the model is not open.
 */
char *shaver_field_name(shaver_model model, int32_t field);

/*
 * shaver_dense_name returns the name of a dense input, counted from 0. The caller frees it with shaver_free. It is
 * NULL if there is none or the model is not open.
 */
char *shaver_dense_name(shaver_model model, int32_t input);

/*
 * shaver_logits sets logits[i] to the logit of row i, for 0 <= i < rows, and returns 0, or -1 after an error.
 * ids has the local ids of the rows, rows * ids of a row, row by row. dense has the values that the model reads,
 * rows * dense inputs, and may be NULL if the model has none. Batches of 64 rows or more are fastest.
 * If an id is out of range or a value is not finite, logits does not change.
 */
int32_t shaver_logits(shaver_model model, double *logits, int64_t rows, shaver_id *ids, shaver_value *dense, char **error);

/* shaver_probability returns the probability of a click for a logit. */
double shaver_probability(double logit);

/* shaver_free frees text that the library returned. text may be NULL. */
void shaver_free(char *text);

#ifdef __cplusplus
}
#endif

#endif
