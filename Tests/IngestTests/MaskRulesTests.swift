import Bytes
import EventLog
import System
import TestSupport
import Testing

@testable import Ingest

/// Checks the rules that a hub keeps beside its log.
@Suite(.within(minutes: 1)) struct MaskRulesTests {
    private static func write(_ text: String, to path: String) throws {
        let directory = try DiskDirectory(Directories.parent(of: path))
        try directory.replace(String(path.split(separator: "/").last ?? ""), with: Array(text.utf8).rawBytes)
    }

    private static func rules(in directory: any StorageDirectory) throws -> String? {
        try MaskRulesFile.read(in: directory).map { String(decoding: $0, as: UTF8.self) }
    }

    @Test func `the rules of the hub's file lie beside the log, and new ones take their place`() throws {
        let path = TemporaryDirectory.make("rules") + "/rules"
        let log = MemoryDirectory()
        let source = MaskRulesSource(path: path) { text in
            String(decoding: text, as: UTF8.self).contains("wrong") ? "line 1: wrong is no rule" : nil
        }
        #expect(throws: MaskRulesRefusal.self) { try source.renew(in: log) }
        #expect(try Self.rules(in: log) == nil)
        try Self.write("users.pin\n", to: path)
        #expect(try source.renew(in: log))
        #expect(try Self.rules(in: log) == "users.pin\n")
        #expect(try !source.renew(in: log), "the same rules are not written again")
        try Self.write("wrong\n", to: path)
        do {
            _ = try source.renew(in: log)
            Issue.record("wrong rules were taken")
        } catch let refusal as MaskRulesRefusal {
            #expect(refusal.description.hasPrefix("mask_rules: \(path): line 1: wrong is no rule"))
        }
        #expect(try Self.rules(in: log) == "users.pin\n", "the former rules stay")
        try Self.write("users.pin\nnotes.body\n", to: path)
        #expect(try source.renew(in: log))
        #expect(try Self.rules(in: log) == "users.pin\nnotes.body\n")
        // A hub without rules of its own writes the file as well, so that every copy has one.
        #expect(try MaskRulesSource(path: nil).renew(in: log))
        #expect(try Self.rules(in: log)?.isEmpty == true)
    }

    @Test func `a damaged file is never taken for rules`() throws {
        let log = MemoryDirectory()
        for text in ["", "users.pin\n", "# a comment\n*.diagnosis\n!notes.email\n"] {
            let whole = MaskRulesFile.contents(of: Array(text.utf8))
            #expect(MaskRulesFile.text(in: whole) == Array(text.utf8))
            for length in 0..<whole.count {
                try log.replace(MaskRulesFile.name, with: Array(whole.prefix(length)).rawBytes)
                #expect(throws: MaskRulesFailure.self, "\(length) of \(whole.count) bytes") {
                    try MaskRulesFile.read(in: log)
                }
            }
            var random = SeededRandom(seed: 11)
            for _ in 0..<300 {
                var altered = whole
                // The heading is left, because a file without it counts as one of a former version.
                let place = 23 + Int(random.next() % UInt64(altered.count - 23))
                altered[place] ^= UInt8(1 + random.next() % 255)
                #expect(MaskRulesFile.text(in: altered) == nil, "byte \(place)")
            }
        }
        // Versions before wrote the rules alone.
        try log.replace(MaskRulesFile.name, with: Array("users.pin\n".utf8).rawBytes)
        #expect(try Self.rules(in: log) == "users.pin\n")
    }

    @Test func `the retention lies beside the log`() throws {
        let log = MemoryDirectory()
        #expect(RetentionFile(in: log) == nil)
        for retention in [
            RetentionFile(seconds: 3600, bytes: nil), RetentionFile(seconds: nil, bytes: 5),
            RetentionFile(seconds: nil, bytes: nil),
        ] {
            try retention.write(in: log)
            #expect(RetentionFile(in: log) == retention)
        }
        try log.replace(RetentionFile.name, with: Array("seconds x\n".utf8).rawBytes)
        #expect(RetentionFile(in: log) == nil)
    }
}
