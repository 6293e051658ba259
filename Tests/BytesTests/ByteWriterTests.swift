import Bytes
import TestSupport
import Testing

@Suite(.within(minutes: 5)) struct ByteWriterTests {
    @Test func `writes decimals of every length`() {
        let values: [Int64] = [0, 9, 10, 99, 100, -1, -10, .max, .min, 1_000_000_007]
        for value in values {
            var writer = ByteWriter(capacity: 16)
            writer.append(decimal: value)
            #expect(writer.bytes.text == String(value))
        }
        var writer = ByteWriter()
        writer.append(decimal: UInt64.max)
        #expect(writer.bytes.text == "18446744073709551615")
    }

    @Test func `keeps its bytes while it grows`() {
        var writer = ByteWriter(capacity: 16)
        for number in 0..<1000 { writer.append(big: UInt32(number)) }
        var reader = ByteReader(writer.bytes)
        var read: [UInt32] = []
        while let number = try? reader.uint32() { read.append(number) }
        #expect(read == Array(0..<1000))
        let ended = reader.isAtEnd
        #expect(ended)
    }

    @Test func `drops from the front and sets lengths behind itself`() {
        var writer = ByteWriter()
        writer.append(little: UInt32(0))
        writer.append("tail")
        writer.set(little: 7, at: 0)
        #expect(writer.bytes.copied() == [7, 0, 0, 0] + Array("tail".utf8))
        writer.dropFirst(6)
        #expect(writer.bytes.text == "il")
    }
}

@Suite(.within(minutes: 5)) struct ByteReaderTests {
    @Test(arguments: 0..<20)
    func `numbers that are read at once are those that are read one by one`(_ count: Int) throws {
        let bytes = (0..<count * 8 + 3).map { UInt8(truncatingIfNeeded: $0 &* 167 &+ 13) }
        // The reader starts at an offset that is not a multiple of eight.
        var (one, all) = (ByteReader(bytes.span.bytes), ByteReader(bytes.span.bytes))
        try one.skip(3)
        try all.skip(3)
        var expected: [UInt64] = []
        for _ in 0..<count { expected.append(try one.littleUInt64()) }
        let found = try all.littleUInt64s(count)
        let isAtEnd = all.isAtEnd
        #expect(found == expected && isAtEnd)
    }

    @Test(arguments: [-1, 3, 1 << 60, Int.max])
    func `more numbers than there are refused, and nothing is taken`(_ count: Int) {
        let bytes = [UInt8](repeating: 1, count: 23)
        var reader = ByteReader(bytes.span.bytes)
        let taken = try? reader.littleUInt64s(count)
        let offset = reader.offset
        #expect(taken == nil && offset == 0)
    }

    @Test func `refuses to read past the end and says where`() {
        let bytes: [UInt8] = [1, 2, 3]
        var reader = ByteReader(bytes.span.bytes)
        do {
            try reader.skip(2)
            _ = try reader.uint32()
            Issue.record("four bytes were read out of one")
        } catch {
            #expect(error.offset == 2)
        }
        let left = reader.remaining
        #expect(left == 1)
    }

    @Test func `refuses a string without its zero`() {
        let bytes = Array("open".utf8)
        var reader = ByteReader(bytes.span.bytes)
        do {
            _ = try reader.cString()
            Issue.record("a string without an end was accepted")
        } catch {
            #expect(error.offset == 0)
        }
    }
}

@Suite(.within(minutes: 5)) struct ChecksumTests {
    @Test func `matches the published check value`() {
        #expect(CRC32C.of(Array("123456789".utf8).span.bytes) == 0xe306_9283)
    }

    /// Checks the vectors of RFC 3720, B.4.
    @Test func `matches the vectors of iSCSI`() {
        #expect(CRC32C.of([UInt8](repeating: 0, count: 32).span.bytes) == 0x8a91_36aa)
        #expect(CRC32C.of([UInt8](repeating: 0xff, count: 32).span.bytes) == 0x62a8_ab43)
        #expect(CRC32C.of([UInt8](0..<32).span.bytes) == 0x46dd_794e)
    }
}

@Suite(.within(minutes: 5)) struct Base64URLTests {
    @Test func `comes back from every length`() {
        for length in 0..<70 {
            let bytes = (0..<length).map { UInt8(truncatingIfNeeded: $0 &* 37 &+ 200) }
            let encoded = Base64URL.encode(bytes.span)
            #expect(Base64URL.decode(encoded.utf8) == bytes)
        }
    }

    @Test func `refuses padding, other alphabets and left-over bits`() {
        for text in ["YQ==", "+/8", "Y", "YR"] { #expect(Base64URL.decode(text.utf8) == nil) }
    }
}

@Suite(.within(minutes: 5)) struct Base64Tests {
    /// Checks the vectors of RFC 4648 §10.
    @Test(arguments: [
        ("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg=="), ("fooba", "Zm9vYmE="),
        ("foobar", "Zm9vYmFy"), ("?>~", "Pz5+"), ("???", "Pz8/"),
    ])
    func `writes the published examples`(text: String, encoded: String) {
        let found = Base64.encode(Array(text.utf8).span)
        #expect(found == encoded)
        #expect(encoded.utf8.allSatisfy { Base64.isDigit($0) || $0 == UInt8(ascii: "=") })
    }
}
