import Bytes
import System

/// Archive of files, one after the other, in the format of `tar` (POSIX ustar).
enum TapeArchive {
    static let blockBytes = 512

    struct Member: Sendable, Equatable {
        var name: String
        /// Offset of the file's bytes in the archive.
        var position: UInt64
        var size: UInt64
    }

    // MARK: Writing

    /// Returns a file's header. The file's bytes follow it, and then zeros up to a whole block.
    static func header(_ name: String, size: UInt64, time: Int64) -> [UInt8] {
        precondition(name.utf8.count < 100, "names in an archive have a largest length")
        var block = [UInt8](repeating: 0, count: blockBytes)
        func put(_ text: String, at place: Int) {
            block.replaceSubrange(place..<place + text.utf8.count, with: text.utf8)
        }
        put(name, at: 0)
        put("0000600", at: 100)
        put("0000000", at: 108)
        put("0000000", at: 116)
        put(octal(size, digits: 11), at: 124)
        put(octal(UInt64(max(0, time)), digits: 11), at: 136)
        put("        ", at: 148)
        put("0", at: 156)
        put("ustar", at: 257)
        put("00", at: 263)
        put(octal(UInt64(sum(block)), digits: 6) + "\0 ", at: 148)
        return block
    }

    /// Returns the number of zeros that fill the last 512-byte block after a file of this size.
    static func padding(_ size: UInt64) -> Int {
        Int((UInt64(blockBytes) - size % UInt64(blockBytes)) % UInt64(blockBytes))
    }

    private static func octal(_ number: UInt64, digits: Int) -> String {
        let text = String(number, radix: 8)
        precondition(text.count <= digits, "a file in an archive has a largest size")
        return String(repeating: "0", count: digits - text.count) + text
    }

    private static func sum(_ block: [UInt8]) -> Int { block.reduce(0) { $0 + Int($1) } }

    // MARK: Reading

    static let mostMembers = 100_000

    /// Returns the files in the archive; nil if the file is no archive, or an incomplete one.
    static func members(of file: any StorageFile) throws(SystemError) -> [Member]? {
        let size = try file.size()
        var members: [Member] = []
        var at: UInt64 = 0
        while at + UInt64(blockBytes) <= size, members.count < mostMembers {
            let block = try file.bytes(at: at, count: blockBytes)
            guard block.count == blockBytes else { return nil }
            if block.allSatisfy({ $0 == 0 }) { return members }
            guard let (name, length) = header(block), length <= size - at - UInt64(blockBytes) else { return nil }
            at += UInt64(blockBytes)
            members.append(Member(name: name, position: at, size: length))
            at += length + UInt64(padding(length))
        }
        return nil
    }

    private static func header(_ block: [UInt8]) -> (name: String, size: UInt64)? {
        var unsummed = block
        unsummed.replaceSubrange(148..<156, with: [UInt8](repeating: 0x20, count: 8))
        guard block[257..<262].elementsEqual("ustar".utf8), let expected = number(block[148..<156]),
            expected == UInt64(sum(unsummed)), let size = number(block[124..<136])
        else { return nil }
        return (String(decoding: block.prefix(100).prefix { $0 != 0 }, as: UTF8.self), size)
    }

    private static func number(_ digits: ArraySlice<UInt8>) -> UInt64? {
        UInt64(String(decoding: digits.prefix { (0x30...0x37).contains($0) }, as: UTF8.self), radix: 8)
    }
}
