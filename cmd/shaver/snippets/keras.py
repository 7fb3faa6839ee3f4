# Keras 3, on its PyTorch backend, whatever backend the model was trained on: a
# functional model without layers of TensorFlow.
import os

os.environ["KERAS_BACKEND"] = "torch"  # before the import of keras
import keras
import numpy as np

model = keras.saving.load_model("model.keras")
model([np.zeros((1, *i.shape[1:]), i.dtype) for i in model.inputs])  # the exporter needs one call
model.export("model.onnx", format="onnx")
