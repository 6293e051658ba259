import Bytes
import Settings
import WebSocket

extension Configuration {
    /// HTTP answer with all settings of the hub and the source of each value, without secrets.
    var told: HTTPResponse {
        let rows = effective.map { row in
            JSONValue.object(
                JSONObject([
                    ("name", .string(row.setting.name)), ("value", row.shown.isEmpty ? .null : .string(row.shown)),
                    ("source", .string(row.source.description)), ("default", .bool(row.isDefault)),
                    ("group", .string(row.setting.group.rawValue)), ("summary", .string(row.setting.summary)),
                ]))
        }
        return .json(.ok, JSONValue.object(JSONObject([("data", .array(rows))])).bytes)
    }
}
