import Bytes

/// Filter that masks the values under certain names in JSON. It keeps everything else byte for byte.
struct MaskedJSON: ~Copyable {
    /// Returns true if the value under the name must be replaced.
    private let isMasked: (String) -> Bool
    /// Returns the text that replaces a value, given the value's bytes.
    private let mark: ([UInt8]) -> String

    init(isMasked: @escaping (String) -> Bool, mark: @escaping ([UInt8]) -> String) {
        self.isMasked = isMasked
        self.mark = mark
    }

    enum Outcome: Equatable {
        /// The JSON has no value under a masked name.
        case same
        case masked([UInt8])
        /// The text is not JSON, or is nested too deeply to search.
        case unreadable
    }

    /// Maximum depth of JSON inside strings of JSON that is searched.
    private static let deepest = 8

    func masking(_ json: [UInt8], depth: Int = 0) -> Outcome {
        guard depth < Self.deepest else { return .unreadable }
        var result = ByteWriter(capacity: json.count)
        var copied = 0
        do throws(ByteError) {
            var scanner = JSONScanner(json.rawBytes, maximumDepth: JSONScanner.deepest)
            var isHidden = false
            while true {
                let start = scanner.offset
                let token = try scanner.next()
                switch token {
                case .end:
                    guard copied > 0 else { return .same }
                    result.append(Array(json[copied...]))
                    return .masked(result.bytes.copied())
                case .name:
                    isHidden = isMasked(scanner.text)
                    continue
                case .null: break
                case _ where isHidden:
                    try scanner.skip(token)
                    replace(json, start, scanner.offset, &copied, &result)
                case .string:
                    try lookInto(scanner.text, json, (start, scanner.offset), depth, &copied, &result)
                default: break
                }
                isHidden = false
            }
        } catch {
            return .unreadable
        }
    }

    private func replace(
        _ json: [UInt8], _ start: Int, _ end: Int, _ copied: inout Int, _ result: inout ByteWriter
    ) {
        let value = Self.start(of: json, from: start)
        result.append(Array(json[copied..<value]))
        JSONText.appendString(mark(Array(json[value..<end])), to: &result)
        copied = end
    }

    private func lookInto(
        _ text: String, _ json: [UInt8], _ place: (start: Int, end: Int), _ depth: Int, _ copied: inout Int,
        _ result: inout ByteWriter
    ) throws(ByteError) {
        let bytes = Array(text.utf8)
        guard Self.mayBe(bytes) else { return }
        switch masking(bytes, depth: depth + 1) {
        case .same: return
        case .unreadable where depth + 1 < Self.deepest: return
        case .unreadable: replace(json, place.start, place.end, &copied, &result)
        case .masked(let inner):
            result.append(Array(json[copied..<Self.start(of: json, from: place.start)]))
            JSONText.appendString(String(decoding: inner, as: UTF8.self), to: &result)
            copied = place.end
        }
    }

    /// True if the text may be JSON with names in it: it begins like an object, an array, or a string, which may
    /// contain JSON itself.
    static func mayBe(_ text: [UInt8]) -> Bool {
        mayBe(text.rawBytes)
    }

    static func mayBe(_ text: RawSpan) -> Bool {
        for at in 0..<text.byteCount {
            switch text.byte(at) {
            case 0x20, 0x0a, 0x0d, 0x09: continue
            case UInt8(ascii: "{"), UInt8(ascii: "["), UInt8(ascii: "\""): return true
            default: return false
            }
        }
        return false
    }

    /// Returns the offset at which the token itself begins, after white space, a comma or a colon.
    private static func start(of json: [UInt8], from offset: Int) -> Int {
        json[offset...].firstIndex { ![0x20, 0x0a, 0x0d, 0x09, UInt8(ascii: ","), UInt8(ascii: ":")].contains($0) }
            ?? offset
    }
}
