// Reads exports of the plugin otel, a list of { path, body (text) } in a file, by the messages of opentelemetry-proto as
// OpenTelemetry's own exporter has them, and prints what is not right: fields that there are not, values of another type
// than the JSON mapping wants, and names of attributes that no semantic convention knows. A message is written in binary
// form and read again: what is in the JSON has to be there.
const fs = require('fs');
const { opentelemetry } = require('@opentelemetry/otlp-transformer/build/src/generated/root');
const conventions = require('@opentelemetry/semantic-conventions/incubating');

const { collector } = opentelemetry.proto;
const TYPES = { '/v1/traces': collector.trace.v1.ExportTraceServiceRequest,
  '/v1/metrics': collector.metrics.v1.ExportMetricsServiceRequest };
const IDS = { traceId: /^[0-9a-f]{32}$/, spanId: /^[0-9a-f]{16}$/, parentSpanId: /^[0-9a-f]{16}$/ };
const NAMES = new Set(Object.entries(conventions).filter(([name]) => name.startsWith('ATTR_')).map(([, value]) => value));

const faults = [];

// Ids are hexadecimal in OTLP's JSON, where Protobuf's has base64.
function withBytes(value, path) {
  if (Array.isArray(value)) return value.map((one, i) => withBytes(one, `${path}[${i}]`));
  if (value === null || typeof value !== 'object') return value;
  return Object.fromEntries(Object.entries(value).map(([name, one]) => {
    if (!IDS[name]) return [name, withBytes(one, `${path}.${name}`)];
    if (!IDS[name].test(one)) faults.push(`${path}.${name} is no id: ${one}`);
    return [name, Buffer.from(one, 'hex')];
  }));
}

// All of `given` is in `read`.
function compare(given, read, path) {
  if (Buffer.isBuffer(given)) {
    if (!read || !given.equals(read)) faults.push(`${path} is another id`);
  } else if (given !== null && typeof given === 'object') {
    if (read === null || typeof read !== 'object' || Array.isArray(given) !== Array.isArray(read)) {
      faults.push(`${path} is no ${Array.isArray(given) ? 'list' : 'message'}`);
      return;
    }
    if (Array.isArray(given) && given.length !== read.length) faults.push(`${path} has ${read.length} elements`);
    for (const name of Object.keys(given)) compare(given[name], read[name], `${path}.${name}`);
  } else if (given !== read) {
    faults.push(`${path} is ${JSON.stringify(given)}, read as ${JSON.stringify(read)}`);
  }
}

function names(attributes, path) {
  for (const { key } of attributes) {
    if (!NAMES.has(key) && !key.startsWith('tollgate.')) faults.push(`${path} has ${key}, of no convention`);
  }
}

for (const { path, body } of JSON.parse(fs.readFileSync(process.argv[process.argv.length - 1], 'utf8'))) {
  const type = TYPES[path], given = withBytes(JSON.parse(body), path);
  const read = type.toObject(type.decode(type.encode(type.fromObject(given)).finish()),
    { defaults: true, longs: String, enums: Number });
  compare(given, read, path);
  for (const part of given.resourceSpans || given.resourceMetrics) {
    names(part.resource.attributes, path);
    for (const scope of part.scopeSpans || []) scope.spans.forEach((span) => names(span.attributes, span.name));
  }
}
console.log(JSON.stringify(faults));
