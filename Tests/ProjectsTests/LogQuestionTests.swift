import TestSupport
import Testing
import WebSocket

@testable import Projects

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
        #expect(try LogQuestion("bundle", []).form == .bundle)
        #expect(try LogQuestion("seed", items("to=-1h")).words == ["--to=-1h", "--"])
        let inParts = try LogQuestion("tail", items("parts=true"))
        #expect(inParts.isInParts && inParts.words == ["--"])
        #expect(try !LogQuestion("tail", items("parts=false")).isInParts)
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
        ("bundle", "file=x"), ("seed", "mask-key=x"), ("tail", "parts=perhaps"), ("part", ""),
    ])
    func `what names files, writes or is none is refused`(command: String, query: String) {
        #expect(throws: LogQuestion.Refusal.self) { try LogQuestion(command, items(query)) }
    }
}
