import Foundation
import System
import TestSupport
import Testing
import TidewireClient

private struct Order: LiveRow {
    static let schema = "demo"
    static let table = "orders"
    let id: Int
    let customer: UUID
}

extension EndToEndPrograms {
    /// Tests of `tidewire dev` as a newcomer uses it: the library gets the printed values and otherwise uses its
    /// defaults.
    @Suite(.serialized) struct DevTests {
        @Test func `each printed token begins with the rows there are, and is known again`() throws {
            let directory = TemporaryDirectory.make("dev")
            let output = directory + "/card"
            let process = try ChildProcess(
                [
                    "/bin/sh", "-c",
                    "exec '\(ServedHub.program)' dev --json --activity 0 --data-dir '\(directory)/data' "
                        + "--listen 127.0.0.1:0 2>'\(output).errors'",
                ], output: output)
            defer {
                process.signal(SIGTERM)
                process.wait(milliseconds: 60_000)
            }
            var card: [String: Any] = [:]
            try eventually("the card", seconds: 300) {
                guard let text = try? String(contentsOfFile: output, encoding: .utf8), text.hasSuffix("\n") else {
                    return false
                }
                card = try JSONSerialization.jsonObject(with: Data(text.utf8)) as? [String: Any] ?? [:]
                return true
            }
            let tokens = card.filter { ($0.value as? String)?.hasPrefix("ey") == true }.mapValues {
                $0 as? String ?? ""
            }
            #expect(tokens.count == 4)
            let address = try #require((card["url"] as? String)?.replacing("ws://", with: "http://"))
            let url = try #require(URL(string: address.replacing("/realtime/v1", with: "")))
            var sessions: Set<String> = []
            var customers: [String: Int] = [:]
            for (name, token) in tokens {
                let claims = try Self.claims(token)
                sessions.insert(try #require(claims["session_id"] as? String, "\(name)"))
                customers[name] = try onThisThread {
                    let client = Tidewire(url: url, key: token, token: token)
                    var batches = client.live(Order.self, window: .immediate).makeAsyncIterator()
                    // Before any rows arrive, an anonymous client receives a notice that no policy shows it rows.
                    while let batch = await batches.next() {
                        #expect(batch.refetchReason == nil, "\(name): \(batch.problems)")
                        if let rows = batch.rows { return Set(rows.map(\.customer)).count }
                    }
                    return -1
                }
            }
            #expect(sessions.count == tokens.count)
            #expect(customers == ["anon": 0, "ana": 1, "ben": 1, "staff": 4])
        }

        private static func claims(_ token: String) throws -> [String: Any] {
            let part = try #require(token.split(separator: ".").dropFirst().first)
            var text = String(part).replacing("-", with: "+").replacing("_", with: "/")
            while text.count % 4 != 0 { text += "=" }
            let data = try #require(Data(base64Encoded: text))
            return try JSONSerialization.jsonObject(with: data) as? [String: Any] ?? [:]
        }
    }
}
