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
    }

    @Test(arguments: [
        ("serve", ""), ("tail", "log=/etc"), ("tail", "config=/etc/passwd"), ("tail", "follow"),
        ("verify", "repair=true"),
        ("tail", "audit-file=x"), ("tail", "mask-rules=x"), ("tail", "mask-key=x"), ("row", "table=notes"),
        ("row", "key=1"),
        ("tx", ""), ("tx", "xid=1&xid=2"), ("tail", "json=perhaps"), ("tail", "from=\0"), ("../tail", ""),
        ("bundle", "file=x"),
    ])
    func `what names files, writes or is none is refused`(command: String, query: String) {
        #expect(throws: LogQuestion.Refusal.self) { try LogQuestion(command, items(query)) }
    }
}
