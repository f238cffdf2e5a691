// Rounding to the dtypes that models compute angles in, and what is left of an angle after it.
const {TURN} = numbers;
const bits = new DataView(new ArrayBuffer(4));

numbers.toBfloat16 = x => {
  bits.setFloat32(0, x);
  const whole = bits.getUint32(0);
  if (!Number.isFinite(x)) return x;
  bits.setUint32(0, (whole + 0x7fff + ((whole >>> 16) & 1)) & 0xffff0000);
  return bits.getFloat32(0);
};

numbers.toFloat16 = x => {
  const single = Math.fround(x),
    size = Math.abs(single);
  if (size === 0 || !Number.isFinite(single)) return single;
  const step = 2 ** (Math.max(Math.floor(Math.log2(size)), -14) - 10);
  const rounded = numbers.halfEven(size / step) * step;
  return Math.sign(single) * (rounded >= 65520 ? Infinity : rounded);
};

numbers.dtypes = {
  bfloat16: x => numbers.toBfloat16(Math.fround(x)),
  float16: numbers.toFloat16,
  float32: Math.fround,
  float64: x => x,
};
numbers.wrapped = angle => angle - TURN * Math.round(angle / TURN);

// Radians that position × theta is off on the circle, when both and their product are rounded to a dtype. A product that
// overflows does not determine the angle: Infinity.
numbers.angleError = (position, theta, dtype) => {
  const round = numbers.dtypes[dtype],
    found = round(round(position) * round(theta));
  return Number.isFinite(found) ? Math.abs(numbers.wrapped(found - position * theta)) : Infinity;
};

// The same where full rotations are removed before an angle is rounded to float32, as posenc does.
numbers.exactError = (position, theta) => {
  const angle = numbers.wrapped(position * theta);
  return Math.abs(Math.fround(angle) - angle);
};
