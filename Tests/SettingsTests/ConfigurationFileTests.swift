import TestSupport
import Testing

@testable import Settings

@Suite(.within(minutes: 5)) struct ConfigurationFileTests {
    @Test(arguments: [
        ("slot = x", "x"), ("slot x", "x"), ("  slot=x  # why", "x"), ("SLOT = 'x'", "x"), ("slot 'x'#y", "x"),
        ("slot = ''", ""), ("slot = 'it''s'", "it's"), (#"slot = 'a\'b\\c\n\t\101'"#, "a'b\\c\n\tA"),
        ("slot = 'a # b'", "a # b"), ("slot = /var/lib-x/y.z", "/var/lib-x/y.z"), ("slot = 1.5GB\r", "1.5GB"),
        ("\u{FEFF}slot = x", "x"), ("slot = ü", "ü"), ("slot = info#comment", "info"),
    ])
    func `reads a line as PostgreSQL does`(text: String, value: String) {
        let file = ConfigurationFile(Array(text.utf8))
        #expect(file.lines == [ConfigurationFile.Line(number: 1, name: "slot", value: value)])
        #expect(file.mistakes.isEmpty)
    }

    @Test(arguments: ["", "   ", "# slot = x", "\t\r", "  # x"])
    func `skips what is no setting`(text: String) {
        let file = ConfigurationFile(Array(text.utf8))
        #expect(file.lines.isEmpty && file.mistakes.isEmpty)
    }

    @Test(arguments: [
        ("slot", "slot has no value; an empty one is ''"), ("slot =  # none", "slot has no value; an empty one is ''"),
        ("slot = 'x", "the quote at the beginning of the value has no end"),
        (#"slot = 'x\"#, "the quote at the beginning of the value has no end"),
        ("= x", "expected a setting's name at the beginning of the line"),
        ("slot = a b", "there is more after the value of slot; a value with spaces or signs stands in single quotes"),
        ("slot = a@b", "there is more after the value of slot; a value with spaces or signs stands in single quotes"),
    ])
    func `says what is wrong with a line`(text: String, message: String) {
        let file = ConfigurationFile(Array(("\n" + text).utf8))
        #expect(file.mistakes == [ConfigurationFile.Mistake(line: 2, message: message)])
        #expect(file.lines.isEmpty)
    }

    @Test func `refuses a value that is not UTF-8`() {
        let file = ConfigurationFile(Array("slot = '".utf8) + [0xFF] + Array("'".utf8))
        #expect(file.mistakes.map(\.message) == ["the value is not UTF-8"])
    }

    @Test func `lets the last line win, over includes too`() throws {
        let files = [
            "./tidewire.conf": "slot = a\ninclude 'conf/more.conf'\npublication = c\ninclude_if_exists 'no.conf'\n",
            "./conf/more.conf": "slot = b\npublication = b\ninclude 'even-more.conf'",
            "./conf/even-more.conf": "log_level = debug",
        ]
        let configuration = try Configuration.load(surroundings: surroundings(files: files))
        #expect(configuration.slot == "b")
        #expect(configuration.publication == "c")
        #expect(configuration.source(of: Setting(\.logLevel)) == .file(path: "./conf/even-more.conf", line: 1))
        #expect(configuration.file == "./tidewire.conf")
    }

    @Test func `reports a missing include where it stands`() {
        #expect(
            complaints(files: ["./tidewire.conf": "\ninclude 'no.conf'"])
                == ["./tidewire.conf:2: there is no file ./no.conf"])
    }

    @Test func `stops files that include each other`() {
        let found = complaints(files: ["./tidewire.conf": "include 'tidewire.conf'"])
        #expect(found == ["./tidewire.conf:1: files include each other more than 10 deep"])
    }
}
