import Foundation
import System
import TestSupport
import Testing
import WebSocket

@testable import Gateway
@testable import Projects
@testable import Settings

@Suite(.within(minutes: 1)) struct LogQuestionTests {
    private func items(_ text: String) -> [HTTPQueryItem] {
        text.split(separator: "&").map { item in
            let parts = item.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false).map(String.init)
            return HTTPQueryItem(parts[0], parts.count == 2 ? parts[1] : "")
        }
    }

    @Test func `what is asked becomes a command's words, and operands stay operands`() throws {
        let question = try LogQuestion("row", items("key=--repair&table=notes&key=2&from=-15m&json"))
        #expect(question.words == ["--from=-15m", "--json=true", "--", "notes", "--repair", "2"])
        #expect(question.form == .json && question.form.contentType.hasPrefix("application/x-ndjson"))
        #expect(try LogQuestion("tail", items("output=csv")).form == .csv)
        #expect(try LogQuestion("session", []).words == ["--"])
        #expect(try LogQuestion("session", items("session=1f")).words == ["--", "1f"])
        #expect(throws: LogQuestion.Refusal.self) { try LogQuestion("session", items("session=1&session=2")) }
        #expect(try LogQuestion("bundle", []).form == .bundle)
        #expect(try LogQuestion("seed", items("to=-1h")).words == ["--to=-1h", "--"])
        let inParts = try LogQuestion("tail", items("parts=true"))
        #expect(inParts.isInParts && inParts.words == ["--"])
        #expect(try !LogQuestion("tail", items("parts=false")).isInParts)
    }

    @Test func `several questions are one process's words, and as strict as one alone`() throws {
        func several(_ text: String) throws -> LogQuestion { try LogQuestion.several(Array(text.utf8)) }
        let asked = try several(
            #"{"questions":[{"command":"row","table":"notes","key":[1,"b"],"json":true},{"command":"stats"}]}"#)
        #expect(asked.each.map(\.words) == [["--json=true", "--", "notes", "1", "b"], ["--"]])
        #expect(asked.role == .analyst && asked.form == .json)
        for text in [
            "", "{}", #"{"questions":[]}"#, #"{"questions":[{}]}"#, #"{"questions":[{"command":"bundle"}]}"#,
            #"{"questions":[{"command":"stats","parts":true}]}"#, #"{"questions":[{"command":"stats","by":{}}]}"#,
            #"{"questions":[{"command":"tail","unmask":"email"}]}"#, #"{"questions":[{"command":"stats"}],"more":1}"#,
            "{\"questions\":[\(Array(repeating: #"{"command":"stats"}"#, count: 21).joined(separator: ","))]}",
        ] {
            #expect(throws: LogQuestion.Refusal.self, "\(text)") { try several(text) }
        }
    }

    @Test func `a stream begins now, and has no end`() throws {
        let stream = try LogQuestion.following(items("table=notes"))
        #expect(stream.words == ["--follow", "--table=notes", "--from=now", "--json=true", "--"])
        #expect(try LogQuestion.following(items("from=@7")).words == ["--follow", "--from=@7", "--json=true", "--"])
        #expect(stream.role == .analyst && stream.audited.hasPrefix("follow table=notes"))
        #expect(try LogQuestion.following(items("unmask=a&because=b")).role == .admin)
        for query in ["to=now", "limit=1", "output=csv", "unmask=a", "follow"] {
            #expect(throws: LogQuestion.Refusal.self, "\(query)") { try LogQuestion.following(items(query)) }
        }
    }

    @Test func `what is to be forgotten is a table, a key, and nothing else`() throws {
        let asked = try LogQuestion.forgetting(items("table=notes&key=--go&key=2&json"), isGo: false)
        #expect(asked.words == ["--json", "--", "notes", "--go", "2"] && asked.form == .json && asked.isOfLog)
        let done = try LogQuestion.forgetting(items("key=1&table=notes"), isGo: true)
        #expect(done.with("--write-down").words == ["--write-down", "--go", "--", "notes", "1"])
        for query in ["", "table=notes", "key=1", "table=a&table=b&key=1", "table=a&key=1&log=/etc", "table=a&key=\0"] {
            #expect(throws: LogQuestion.Refusal.self, "\(query)") {
                try LogQuestion.forgetting(items(query), isGo: true)
            }
        }
    }

    @Test(arguments: [
        ("serve", ""), ("tail", "log=/etc"), ("tail", "config=/etc/passwd"), ("tail", "follow"),
        ("verify", "repair=true"),
        ("tail", "audit-file=x"), ("tail", "mask-rules=x"), ("tail", "mask-key=x"), ("row", "table=notes"),
        ("row", "key=1"),
        ("tx", ""), ("tx", "xid=1&xid=2"), ("tail", "json=perhaps"), ("tail", "from=\0"), ("../tail", ""),
        ("tail", "output=bundle"), ("seed", "output=bundle"), ("bundle", "output=json"), ("tail", "output=xml"),
        ("tail", "unmask=email"), ("tail", "unmask=email&because="), ("tail", "unmask=email&because= "),
        ("bundle", "file=x"), ("seed", "mask-key=x"), ("tail", "parts=perhaps"), ("part", ""),
    ])
    func `what names files, writes or is none is refused`(command: String, query: String) {
        #expect(throws: LogQuestion.Refusal.self) { try LogQuestion(command, items(query)) }
    }

    // MARK: The process

    private func run(_ script: String, for client: WaitingClient, log: String) throws -> QuestionRun {
        let program = TemporaryDirectory.make("program") + "/answer"
        try Data("#!/bin/sh\n\(script)\n".utf8).write(to: URL(fileURLWithPath: program + ".text"))
        // Another process writes the file. Otherwise, a process that this one starts for another test at the same time
        // would hold the file open for writing, and then it could not be run.
        let installing = try ChildProcess(["/usr/bin/install", "-m", "755", program + ".text", program])
        #expect(installing.wait(milliseconds: 30_000) == .exited(0))
        return QuestionRun(
            what: .question(try LogQuestion("tail", [])), place: QuestionPlace(log: log, environment: [:]),
            program: program,
            client: client)
    }

    /// Checks that a question's process ends with its client. It would use a processor that other questions need.
    @Test func `a question ends with the client that asked it`() throws {
        let log = TemporaryDirectory.make("data") + "/log"
        try FileManager.default.createDirectory(atPath: log, withIntermediateDirectories: true)
        let (client, answer) = (WaitingClient(), Awaited<HTTPStatus>())
        let mark = log + "/begun"
        let run = try run(": >\(mark); exec sleep 1000", for: client, log: log)
        let thread = try BackgroundThread("question") { answer.set(run.answer().status) }
        #expect(eventually { FileManager.default.fileExists(atPath: mark) })
        client.leave()
        // A question that takes too long is answered with 503.
        #expect(answer.wait() == .internalServerError)
        thread.join()
        // A question whose client has gone while it waits for its turn is not started.
        #expect(try self.run("exit 0", for: client, log: log).answer().status == .internalServerError)
        #expect(try self.run("exit 0", for: WaitingClient(), log: log).answer().status == .ok)
    }

    @Test func `an answer does not say where the log lies`() throws {
        let directory = TemporaryDirectory.make("data")
        let log = directory + "/log"
        try FileManager.default.createDirectory(atPath: log, withIntermediateDirectories: true)
        let answer = try run(
            "echo 'tidewire: there is no log at \(log), nor \(directory)/answers' >&2; exit 2", for: WaitingClient(),
            log: log
        ).answer()
        #expect(answer.status == .badRequest && !String(decoding: answer.body, as: UTF8.self).contains(directory))
    }
}
