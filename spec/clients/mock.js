// A mock of LLM APIs that others wrote (@copilotkit/aimock), on a free port, which it prints. What it answers:
const { LLMock } = require('@copilotkit/aimock');

const mock = new LLMock({ port: 0, host: '127.0.0.1', chunkSize: 4, logLevel: 'silent' });
const usage = { prompt_tokens: 11, completion_tokens: 22, total_tokens: 33, input_tokens: 11, output_tokens: 22 };
mock.onMessage(/hello/i, { content: 'Hello from the mock, nöon.', usage });
mock.onMessage(/tool/i, { toolCalls: [{ name: 'get_tide', arguments: '{"port":"Brest"}' }], usage });
mock.onMessage(/uncounted/i, { content: 'Hello from the mock, nöon.' });
mock.start().then(() => console.log(mock.url));
