/* Scores the same rows in two threads, and writes their logits to a file. The arguments are the model, the number of
   rows, the files of their ids and dense values, and the file of the logits. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shaver.h"

struct batch {
	shaver_model model;
	int64_t rows;
	int32_t *ids;
	float *dense;
	double *logits;
	char *error;
};

static void *score(void *p) {
	struct batch *b = p;
	shaver_logits(b->model, b->logits, b->rows, b->ids, b->dense, &b->error);
	return NULL;
}

static void *bytes(const char *path, size_t *size) {
	FILE *f = fopen(path, "rb");
	if (f == NULL) return NULL;
	fseek(f, 0, SEEK_END);
	*size = ftell(f);
	rewind(f);
	void *data = malloc(*size + 1);
	*size = fread(data, 1, *size, f);
	fclose(f);
	return data;
}

/* said prints a message of the library, and frees it. */
static void said(char *error) {
	puts(error == NULL ? "no error" : error);
	shaver_free(error);
}

int main(int argc, char **argv) {
	if (argc != 6) return 2;
	char *error;
	size_t size;
	shaver_model none = shaver_open("missing.safetensors", &error);
	if (none != 0) return 3;
	said(error);

	shaver_model model = shaver_open(argv[1], &error);
	if (model == 0) {
		said(error);
		return 1;
	}
	int32_t width, dense, first;
	int32_t fields = shaver_shape(model, &width, &dense);
	if (shaver_pads_front(model, 0) != 0 || shaver_pads_front(model, fields) != -1) return 3;
	if (shaver_field(model, 0, &first, NULL, NULL) != 0 || shaver_field(model, fields, &first, NULL, NULL) != -1) return 3;
	printf("%d fields, %d ids, %d dense, %d features in the first\n", fields, width, dense, first);
	for (int32_t i = 0; i <= fields; i++) {
		char *name = shaver_field_name(model, i);
		if (name != NULL) printf("field %s\n", name);
		shaver_free(name);
	}
	for (int32_t i = 0; i <= dense; i++) {
		char *name = shaver_dense_name(model, i);
		if (name != NULL) printf("dense %s\n", name);
		shaver_free(name);
	}

	/* The second thread has a model of its own, which is in memory. */
	void *data = bytes(argv[1], &size);
	struct batch batches[2];
	memset(batches, 0, sizeof batches);
	batches[0].model = model;
	batches[1].model = shaver_open_bytes("memory", data, size, NULL);
	pthread_t threads[2];
	int64_t rows = atoll(argv[2]);
	for (int i = 0; i < 2; i++) {
		batches[i].rows = rows;
		batches[i].ids = bytes(argv[3], &size);
		batches[i].dense = bytes(argv[4], &size);
		batches[i].logits = calloc(rows, sizeof(double));
		if (pthread_create(&threads[i], NULL, score, &batches[i]) != 0) return 3;
	}
	for (int i = 0; i < 2; i++) {
		pthread_join(threads[i], NULL);
		if (batches[i].error != NULL) {
			said(batches[i].error);
			return 1;
		}
	}
	if (memcmp(batches[0].logits, batches[1].logits, rows * sizeof(double)) != 0) return 4;
	FILE *out = fopen(argv[5], "wb");
	if (out == NULL || fwrite(batches[0].logits, sizeof(double), rows, out) != (size_t)rows || fclose(out) != 0) return 3;

	batches[0].ids[width] = first; /* row 1, field 0 */
	if (shaver_logits(model, batches[0].logits, rows, batches[0].ids, batches[0].dense, &error) != -1) return 3;
	said(error);
	if (shaver_logits(model, NULL, rows, batches[0].ids, batches[0].dense, &error) != -1) return 3;
	said(error);
	if (shaver_logits(model, batches[0].logits, -1, batches[0].ids, batches[0].dense, &error) != -1) return 3;
	said(error);
	shaver_close(model);
	shaver_close(model);
	shaver_close(batches[1].model);
	free(data);
	if (shaver_shape(model, NULL, NULL) != -1) return 3;
	if (shaver_logits(model, batches[0].logits, 1, batches[0].ids, batches[0].dense, &error) != -1) return 3;
	said(error);
	return 0;
}
