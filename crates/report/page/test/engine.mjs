// An engine with two tiers as its socket shows it, for tests on machines that have one: the status of the Rust tests and a map,
// and a record of what was asked.

import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import { fileURLToPath } from "node:url";

const MIB = 2 ** 20;
const fixture = fileURLToPath(new URL("../../../live/tests/fixtures/status.json", import.meta.url));

export function example() {
  const status = JSON.parse(readFileSync(fixture, "utf8"));
  const part = (at, resident, hot) => ({ start: 0x7f0000000000 + at * 2 * MIB, bytes: 2 * MIB, kind: "anonymous", resident, hot });
  const parts = Array.from({ length: 60 }, (_, at) => {
    if (at % 17 === 16) return part(at, [0, 0], [0, 0]);
    if (at < 9) return part(at, [2 * MIB, 0], [2 * MIB, 0]);
    if (at < 14) return part(at, [MIB, MIB], [MIB / 2, 0]);
    return part(at, [0, 2 * MIB], [0, at % 5 === 0 ? MIB / 2 : 0]);
  });
  return {
    status: { ...status, bounds: { bandwidth: 200 * MIB, pressure: 0.1 }, ends_after_seconds: 300, moves: { ...status.moves, pieces_per_second: 4, eta_seconds: 3 } },
    map: { schema: 1, tiers: ["dram", "slow"], processes: [{ pid: 4711, name: 'redis "a"', parts }, { pid: 4712, name: "\u001b[2J", parts: parts.slice(20, 30).map((one) => ({ ...one, hot: null })) }] },
  };
}

/** Serves at `socket`; `engine` may be changed meanwhile. */
export async function serve_engine(socket, engine) {
  const asked = [];
  const server = createServer((request, response) => {
    asked.push(`${request.method} ${request.url}`);
    const answer = (code, text) => response.writeHead(code, { "Content-Type": "application/json", "Content-Length": Buffer.byteLength(text), Connection: "close" }).end(text);
    if (request.method === "POST") {
      engine.status.state = request.url === "/pause" ? "paused" : "working";
      return answer(200, `${engine.status.state}\n`);
    }
    if (request.url === "/status") return answer(200, JSON.stringify(engine.status));
    if (request.url === "/map") return answer(200, JSON.stringify(engine.map));
    return answer(404, "nothing here\n");
  });
  await new Promise((done) => server.listen(socket, done));
  return { asked, end: () => new Promise((done) => (server.close(done), server.closeAllConnections())) };
}
