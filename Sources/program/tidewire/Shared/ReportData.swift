import Console
import Foundation
import Settings

/// Answers for a report, asked of a bundle: everything that the pages of the report show without a hub.
struct ReportData {
    let bundle: String
    let note: String?
    let made: String
    let terminal: Terminal
    let progress: Progress

    /// Maximum numbers of answers in a report. The page says of questions beyond them that the report lacks the answer.
    static let mostChanges = 20_000
    static let mostTold = 500
    static let mostSessions = 200
    static let mostReasons = 500

    /// Returns the answers as JSON, in the form that `FileSource` in the console's `source.js` reads.
    func json() async throws -> [UInt8] {
        let changes = try await lines(["tail", "--from=oldest", "--limit=\(Self.mostChanges)", "--json"])
        var ledger = try await lines(["session", "--from=oldest", "--json"])
        ledger += try await deliveries(ledger)
        var (told, reasons) = (JSONLine(), JSONLine())
        var count = 0
        for change in changes.suffix(Self.mostTold) {
            guard let members = members(change), let offset = members["offset"] as? Int else { continue }
            progress.note("asked who was told of @\(offset)")
            let clients = try await lines(["who", "--gone", "--json", "--", "@\(offset)"])
            told.add("\(offset)", json: Self.list(clients))
            for (user, answer) in try await self.reasons(offset, members, clients, room: Self.mostReasons - count) {
                reasons.add("\(offset) \(user)", json: Self.list(answer))
                count += 1
            }
        }
        var whole = JSONLine()
        whole.add("project", "report")
        whole.add("title", note ?? "Report")
        whole.add("made", made)
        whole.add("changes", json: Self.list(changes))
        whole.add("ledger", json: Self.list(ledger))
        whole.add("who", json: told.text)
        whole.add("why", json: reasons.text)
        whole.add("policies", json: Self.list(try await lines(["policies", "--from=oldest", "--json"])))
        whole.add("info", json: Self.list(try await lines(["log", "info", "--json"])))
        whole.add("stats", json: Self.list(try await lines(["stats", "--top=200", "--json"])))
        return Array(whole.text.utf8)
    }

    private static func list(_ lines: [String]) -> String { "[\(lines.joined(separator: ","))]" }

    /// Returns the deliveries of each session in the ledger, if they are recorded one by one.
    private func deliveries(_ ledger: [String]) async throws -> [String] {
        var sessions: [String] = []
        for line in ledger {
            guard let session = members(line)?["session"] as? String, session.contains(where: { $0 != "0" }),
                !sessions.contains(session), sessions.count < Self.mostSessions
            else { continue }
            sessions.append(session)
        }
        var found: [String] = []
        for session in sessions {
            found += try await lines(["session", "--deliveries", "--json", "--", session])
                .filter { members($0)?["event"] as? String == "sent" }
        }
        return found
    }

    /// Returns why each user was told of the change, or was not.
    private func reasons(
        _ offset: Int, _ change: [String: Any], _ clients: [String], room: Int
    ) async throws -> [(user: String, answer: [String])] {
        guard let table = change["table"] as? String, let schema = change["schema"] as? String else { return [] }
        var seen: Set<String> = []
        var found: [(user: String, answer: [String])] = []
        for client in clients.compactMap(members) {
            guard let user = client["user"] as? String, !user.isEmpty, let role = client["role"] as? String,
                found.count < room, seen.insert(user).inserted
            else { continue }
            let words = [
                "why", "--table=\(schema).\(table)", "--role=\(role)", "--sub=\(user)", "--offset=@\(offset)", "--json",
            ]
            let answer = try await lines(words)
            if !answer.isEmpty { found.append((user, answer)) }
        }
        return found
    }

    /// Runs a command on the bundle, and returns the lines of its JSON. A question that has no answer has no lines.
    private func lines(_ words: [String]) async throws -> [String] {
        let place = ["--log=\(bundle)"]
        let name = words[0] == "log" ? 2 : 1
        let result = await InnerCommand.run(Array(words.prefix(name)) + place + words.dropFirst(name), terminal)
        guard result.code != .damaged else {
            throw CommandFailure(
                .damaged, "the report cannot be made: \(result.remarks)",
                hint: "tidewire log verify says what is damaged.")
        }
        return result.output.split(separator: "\n").map(String.init).filter { members($0) != nil }
    }

    private func members(_ line: String) -> [String: Any]? {
        (try? JSONSerialization.jsonObject(with: Data(line.utf8))) as? [String: Any]
    }
}
