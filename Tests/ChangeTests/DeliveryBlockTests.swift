import Bytes
import TestSupport
import Testing

@testable import Change

/// Checks that recorded deliveries are decoded unchanged.
@Suite(.within(minutes: 5)) struct DeliveryBlockTests {
    typealias Delivery = DeliveryBlock.Delivery

    private static func read(
        _ block: [UInt8], from time: Int64, of wants: (UInt64) -> Bool = { _ in true }
    ) throws(ByteError) -> [Delivery] {
        var found: [Delivery] = []
        try DeliveryBlock.read(block.span.bytes, from: time, of: wants) { found.append($0) }
        return found
    }

    @Test(arguments: seeds(30))
    func `whatever was sent to whom, in turns and blocks, while channels come and go`(_ seed: Seed) throws {
        var random = SeededRandom(seed: seed)
        var writer = DeliveryBlockWriter()
        var seats: [(seat: UInt32, session: UInt64, channel: UInt32)] = []
        var (lastSession, time, offset) = (UInt64(1) << 50, Int64(1_700_000_000_000_000), UInt64(1_000_000))
        for _ in 0..<8 {
            var expected: [Delivery] = []
            for _ in 0..<Int.random(in: 0..<6, using: &random) {
                for _ in 0..<Int.random(in: 0..<5, using: &random) {
                    lastSession += UInt64.random(in: 1..<1 << 24, using: &random)
                    let channel = UInt32.random(in: 0..<4, using: &random)
                    seats.append((writer.seat(session: lastSession, channel: channel), lastSession, channel))
                }
                #expect(Set(seats.map { $0.seat }).count == seats.count)
                let changes = Int.random(in: 1..<5, using: &random)
                time += Int64.random(in: 0..<5_000, using: &random)
                writer.beginTurn(at: time, changes: changes)
                for _ in 0..<changes {
                    // A client that waited for an answer receives a change later than other clients.
                    offset = offset &+ UInt64.random(in: 0..<9_000, using: &random) &- 500
                    let told = seats.filter { _ in Bool.random(using: &random) }
                    let members = Bool.random(using: &random) ? told : told.shuffled(using: &random)
                    let places: [UInt32] = members.map { $0.seat }
                    writer.append(offset, to: places.span)
                    expected += members.map {
                        Delivery(offset: offset, time: time, session: $0.session, channel: $0.channel)
                    }
                }
            }
            guard !writer.isEmpty else { continue }
            let (began, offsets) = (writer.began, writer.offsets)
            let block = writer.take()
            let isEmpty = writer.isEmpty
            #expect(isEmpty)
            #expect(try Self.read(block, from: began) == expected)
            #expect(expected.allSatisfy { offsets.contains($0.offset) })
            let regions = Set(DeliveryBlock.regions(of: block))
            #expect(expected.allSatisfy { regions.contains(DeliveryBlock.region(of: $0.offset)) })
            if let one = expected.randomElement(using: &random)?.offset {
                #expect(try Self.read(block, from: began) { $0 == one } == expected.filter { $0.offset == one })
            }
            while seats.count > 3 {
                let place = Int.random(in: 0..<seats.count, using: &random)
                writer.leave(seats.remove(at: place).seat)
            }
        }
    }

    @Test func `a change for the same ones as the one before takes a few bytes, however many those are`() throws {
        var writer = DeliveryBlockWriter()
        let seats = (0..<5_000).map { writer.seat(session: UInt64(1_700_000_000_000_000 + $0 * 900) << 10, channel: 1) }
        writer.beginTurn(at: 1, changes: 1)
        writer.append(7, to: seats.span)
        let before = writer.byteCount
        #expect(before < 5_000 * 4)
        writer.beginTurn(at: 100_001, changes: 1)
        writer.append(8, to: seats.span)
        let after = writer.byteCount
        #expect(after - before < 16)
        #expect(try Self.read(writer.take(), from: 1).count == 10_000)
    }

    @Test(arguments: seeds(20)) func `whatever the bytes are, it answers or refuses`(_ seed: Seed) {
        var random = SeededRandom(seed: seed)
        var writer = DeliveryBlockWriter()
        let seats = (0..<20).map { writer.seat(session: UInt64($0) << 20, channel: 1) }
        writer.beginTurn(at: 1, changes: 3)
        for offset in 0..<UInt64(3) {
            let members = seats.shuffled(using: &random)
            writer.append(offset * 5_000, to: members.span)
        }
        let block = writer.take()
        for _ in 0..<400 {
            var bytes = block
            for _ in 0..<3 { bytes[random.index(in: bytes)] = UInt8(truncatingIfNeeded: random.next()) }
            bytes = Array(bytes.prefix(Int.random(in: 1...bytes.count, using: &random)))
            _ = try? Self.read(bytes, from: 0)
            _ = DeliveryBlock.regions(of: bytes)
        }
    }

    @Test func `numbers take as few bytes as they can, and no others are read`() throws {
        let numbers: [UInt64] = [0, 1, 127, 128, 16_383, 16_384, 1 << 62, 1 << 63, .max]
        var writer = ByteWriter()
        for number in numbers {
            writer.append(varint: number)
            writer.append(zigzag: Int64(bitPattern: number))
        }
        let bytes = writer.copied()
        var reader = ByteReader(bytes.span.bytes)
        for number in numbers {
            let (plain, difference) = (try reader.varint(), try reader.zigzag())
            #expect(plain == number && difference == Int64(bitPattern: number))
        }
        let isAtEnd = reader.isAtEnd
        #expect(isAtEnd)
        let tooLong: [[UInt8]] = [
            [0x80, 0x00], Array(repeating: 0xFF, count: 10), Array(repeating: 0x80, count: 10) + [1], [0x80],
        ]
        for bytes in tooLong {
            #expect(throws: ByteError.self) {
                var reader = ByteReader(bytes.span.bytes)
                _ = try reader.varint()
            }
        }
    }
}

extension SeededRandom {
    fileprivate mutating func index(in bytes: [UInt8]) -> Int { Int.random(in: 0..<bytes.count, using: &self) }
}
